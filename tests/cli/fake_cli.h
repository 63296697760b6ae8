// The command line with the engine of fake_engine.cc, run as a child process.
#pragma once

#include <string>
#include <vector>

#include "cli/process.h"

namespace segue {

// A child that runs `segue_fake <arguments>` in `directory`.
inline Child Fake(std::vector<std::string> arguments, const ScratchDirectory& directory) {
  Child child{.directory = directory.path()};
  child.command = std::move(arguments);
  child.command.insert(child.command.begin(), SEGUE_FAKE_BINARY);
  return child;
}

inline Outcome RunFake(std::vector<std::string> arguments, const ScratchDirectory& directory) {
  return RunChild(Fake(std::move(arguments), directory));
}

}  // namespace segue
