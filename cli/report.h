// What is said about a finished picture: in the PNG itself and as JSON.
#pragma once

#include <string>
#include <vector>

#include "segue/engine.h"
#include "segue/image.h"

namespace segue::cli {

// One `segue generate` run, as far as it is the same for all its pictures.
struct RunFacts {
  std::string model;  // as given
  std::string prompt;
  std::string latents_file;  // empty: the noise is the seed's
  bool negative_prompt_given = false;
  bool bf16 = false;
  bool reference = false;
  int threads = 0;
  int tensor_parallel = 1;
  bool cfg_parallel = false;
  double load_s = 0;
  MemoryReport memory;  // of the whole run; all 0: on the CPU
};

struct Written {
  std::string path;
  std::string stages_path;  // empty: not asked for
  Picture picture;          // its image and stages may have been released
  int width = 0;
  int height = 0;
};

// The settings that reproduce the picture. A function of the request alone: the same request
// gives the same file.
TextChunks SettingsAsText(const RunFacts& facts, const Picture& picture);

// The document that --json prints (docs/cli.md), ending in a line feed.
std::string RunAsJson(const RunFacts& facts, const std::vector<Written>& pictures);

}  // namespace segue::cli
