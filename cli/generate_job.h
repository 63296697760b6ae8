// What `segue generate` was asked to do: its options as text, and what they mean.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/output_file.h"
#include "cli/report.h"
#include "segue/engine.h"

namespace segue::cli {

// The options of the command line, unread; absent ones are nullopt.
struct GenerateOptions {
  std::string model;
  std::optional<std::string> prompt, prompt_file, negative_prompt;
  std::optional<std::string> device, attention, random_weights, cache, tensor_parallel;
  std::optional<std::string> size, steps, guidance, seed, count, threads;
  std::optional<std::string> output, dump, latents, quality, gates;
  bool overwrite = false, no_graphs = false, drop_modulation = false, cfg_parallel = false,
       bf16 = false, reference = false, json = false, quiet = false;
};

void DeclareGenerateOptions(CLI::App& app, GenerateOptions& options);

struct GenerateJob {
  EngineOptions engine;
  Request request;  // of the first picture; picture i has seed + i
  int count = 1;
  bool seed_given = false;
  OutputPattern output;
  bool output_given = false;
  Existing existing = Existing::kRefuse;
  std::string dump_directory;  // empty: no dump
  bool json = false;
  bool quiet = false;
  RunFacts facts;
};

// Reads and checks every option by itself and against the others, the prompt file and the noise
// file. What only the model can judge (Engine::Validate, CheckGuidance) comes after loading.
Result<GenerateJob> ReadGenerateJob(const GenerateOptions& options);

// Options that these settings would leave without effect are errors: a negative prompt without
// guidance.
Status CheckGuidance(const GenerateJob& job, const ModelDefaults& defaults);

// Whether a guidance scale runs the second branch: more than 1, rounding noise of 1e-6 apart.
bool IsGuided(double guidance);

// ~/.cache/segue, or what XDG_CACHE_HOME says; "" where neither is known.
std::string DefaultCache();

// The file the stages of a picture go to.
std::string StagesPath(const GenerateJob& job, uint64_t seed);

}  // namespace segue::cli
