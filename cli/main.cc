// The command line's composition root: the list of subcommands.
#include "cli/bench.h"
#include "cli/compare.h"
#include "cli/generate.h"
#include "cli/inspect.h"
#include "cli/plan.h"
#include "cli/program.h"
#include "cli/quality.h"
#include "cli/verify.h"

int main(int argc, char** argv) {
  using namespace segue::cli;
  constexpr RegisterCommand kCommands[] = {
      RegisterGenerate, RegisterInspect, RegisterVerify, RegisterCompare,
      RegisterQuality,  RegisterPlan,    RegisterBench,
  };
  return RunProgram(argc, argv, kCommands);
}
