#include "cli/plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/attention_lengths.h"
#include "cli/console.h"
#include "cli/parse.h"
#include "cli/table.h"
#include "segue/attention_plan.h"

namespace segue::cli {
namespace {

using attention::Plan;
using attention::PlanSettings;
using attention::WorkerLoad;
using attention::WorkList;
using attention::WorkTile;
using Json = nlohmann::ordered_json;

constexpr char kName[] = "plan attention";
constexpr attention::Gpu kH200{.compute_capability = 90, .multiprocessors = 132};
constexpr char kExamples[] = R"(Examples:
  segue plan attention --heads 24 --lengths 64+4096
  segue plan attention --heads 24 --lengths 64+4096,14+4096,512+6032 --tiles 10
  segue plan attention --heads 28 --kv-heads 4 --lengths 1058 --causal --json
  segue plan attention --heads 8 --lengths 20:77 --place cpu --dtype f32

A sequence is a list of segments: 64+4096 is 64 text rows and 4096 image rows. 64:0+4096 gives the
first of them queries and no keys. Nothing is computed, and no GPU is needed.)";

struct PlanFlags {
  std::optional<std::string> lengths, heads, kv_heads, head_dim, threads, gpu, tiles;
  std::string place = "cuda";
  std::string dtype = "bf16";
  std::string backend;
  bool causal = false;
  bool lse = false;
  bool device_lengths = false;
  bool json = false;
};

// What is to be printed: the plan and where its GPU comes from.
struct Planned {
  Plan plan;
  AttentionLengths lengths;
  std::string assumed;  // why the GPU is not the one that is here; empty: it is, or there is none
  size_t tiles = 5;     // to show at each end
};

Status ReadOptions(const PlanFlags& flags, attention::Options& options) {
  constexpr int kMost = 1 << 16;
  SEGUE_ASSIGN_OR_RETURN(options.q_heads, ParseInt("--heads", *flags.heads, 1, kMost));
  options.kv_heads = options.q_heads;
  if (flags.kv_heads) {
    SEGUE_ASSIGN_OR_RETURN(options.kv_heads, ParseInt("--kv-heads", *flags.kv_heads, 1, kMost));
  }
  options.head_dim = 128;
  if (flags.head_dim) {
    SEGUE_ASSIGN_OR_RETURN(options.head_dim, ParseInt("--head-dim", *flags.head_dim, 1, kMost));
  }
  options.softmax_scale = 1.0f / std::sqrt(static_cast<float>(options.head_dim));
  options.causal = flags.causal;
  options.element_type = flags.dtype == "f32"    ? attention::ElementType::kFloat32
                         : flags.dtype == "bf16" ? attention::ElementType::kBFloat16
                                                 : attention::ElementType::kFloat16;
  return {};
}

// The GPU to plan for: as given, the one that is here, else an H200.
Status ReadGpu(const PlanFlags& flags, PlanSettings& settings, std::string& assumed) {
  if (settings.place != attention::Place::kCuda) {
    if (!flags.gpu) return {};
    return Usage("--gpu", *flags.gpu, "--place cuda beside it");
  }
  if (flags.gpu) {
    assumed = "as given";
    SEGUE_ASSIGN_OR_RETURN(settings.gpu, ParseGpu("--gpu", *flags.gpu));
    return {};
  }
  const Result<attention::Gpu> here = attention::CurrentGpu();
  settings.gpu = here.ok() ? *here : kH200;
  if (!here.ok()) assumed = "an H200, as there is no GPU here (" + here.error().got + ")";
  return {};
}

Result<Planned> MakePlan(const PlanFlags& flags) {
  PlanSettings settings;
  SEGUE_RETURN_IF_ERROR(ReadOptions(flags, settings.options));
  settings.place = flags.place == "cpu" ? attention::Place::kCpu : attention::Place::kCuda;
  SEGUE_ASSIGN_OR_RETURN(AttentionLengths lengths, ParseLengths("--lengths", *flags.lengths));
  settings.max_sequences = lengths.sequences;
  settings.max_segments = lengths.segments;
  settings.tensors = lengths.tensors;
  settings.wants_lse = flags.lse;
  settings.device_lengths = flags.device_lengths;
  settings.backend = flags.backend;
  if (flags.threads) {
    if (settings.place != attention::Place::kCpu) {
      return Usage("--threads", *flags.threads, "--place cpu beside it");
    }
    SEGUE_ASSIGN_OR_RETURN(settings.threads, ParseInt("--threads", *flags.threads, 1, 1024));
  }
  std::string assumed;
  SEGUE_RETURN_IF_ERROR(ReadGpu(flags, settings, assumed));
  int tiles = 5;
  if (flags.tiles) {
    SEGUE_ASSIGN_OR_RETURN(tiles,
                           ParseInt("--tiles", *flags.tiles, 0, std::numeric_limits<int>::max()));
  }
  SEGUE_ASSIGN_OR_RETURN(Plan plan, Plan::Create(settings));
  return Planned{.plan = std::move(plan),
                 .lengths = std::move(lengths),
                 .assumed = std::move(assumed),
                 .tiles = static_cast<size_t>(tiles)};
}

// "tiles 7..8, mean 7.3": of every worker.
std::string Spread(const WorkList& work, int64_t WorkerLoad::* count) {
  int64_t least = std::numeric_limits<int64_t>::max();
  int64_t most = 0;
  int64_t total = 0;
  for (const WorkerLoad& worker : work.workers) {
    least = std::min(least, worker.*count);
    most = std::max(most, worker.*count);
    total += worker.*count;
  }
  const double mean = static_cast<double>(total) / static_cast<double>(work.workers.size());
  return Format("%lld to %lld a worker, mean %.1f", static_cast<long long>(least),
                static_cast<long long>(most), mean);
}

// Mean over largest: the share of the time to the end of the last worker that workers work.
double Balance(const WorkList& work) {
  int64_t most = 0;
  int64_t total = 0;
  for (const WorkerLoad& worker : work.workers) {
    most = std::max(most, worker.key_tiles);
    total += worker.key_tiles;
  }
  if (most == 0) return 1.0;
  return static_cast<double>(total) / static_cast<double>(work.workers.size()) /
         static_cast<double>(most);
}

std::string TilesText(const WorkList& work, size_t ends) {
  Table table({0, 1, 2, 4});
  table.Add({"entry", "sequence", "head", "query rows", "key tiles"});
  for (size_t i = 0; i < work.tiles.size(); ++i) {
    const WorkTile& tile = work.tiles[i];
    const bool shown = i < ends || work.tiles.size() - i <= ends;
    if (!shown) {
      if (i == ends) table.Add({"..."});
      continue;
    }
    const long long begin = tile.query_begin;
    table.Add({std::to_string(i), std::to_string(tile.sequence), std::to_string(tile.head),
               Format("%lld..%lld", begin, begin + tile.query_rows),
               std::to_string(tile.key_tiles)});
  }
  return table.Text("  ");
}

std::string WorkText(const WorkList& work, size_t ends) {
  const size_t workers = work.workers.size();
  std::string text = Format("tiles: %zu of at most %d query rows, against %d key rows at a time\n",
                            work.tiles.size(), work.query_rows, work.key_rows);
  text += work.dynamic ? "order: longest sequences first, taken as workers become free\n"
                       : "order: fixed, in steps of the workers\n";
  text += Format("workers: %zu, %.2f waves", workers,
                 static_cast<double>(work.tiles.size()) / static_cast<double>(workers));
  if (work.halves > 0) {
    text += Format(", the last %lld tiles are halves", static_cast<long long>(work.halves));
  }
  text += "\ntiles taken: " + Spread(work, &WorkerLoad::tiles) + "\n";
  text += "key tiles visited: " + Spread(work, &WorkerLoad::key_tiles);
  text +=
      Format(", balance %.1f %%%s\n", 100.0 * Balance(work), work.dynamic ? " (estimated)" : "");
  return ends == 0 ? text : text + TilesText(work, ends);
}

std::string AsText(const Planned& planned, const Result<WorkList>& work) {
  const Plan& plan = planned.plan;
  std::string text = plan.ToString();
  if (!planned.assumed.empty()) text += "planned for: " + planned.assumed + "\n";
  text += "workspace: " + FormatBytes(plan.workspace_bytes()) + "\n";
  int64_t q_rows = 0;
  int64_t kv_rows = 0;
  for (const attention::TensorRows& tensor : planned.lengths.tensors) {
    q_rows += tensor.q_rows;
    kv_rows += tensor.kv_rows;
  }
  text += Format("lengths: %d sequence%s, %lld query rows, %lld key rows\n",
                 planned.lengths.sequences, planned.lengths.sequences == 1 ? "" : "s",
                 static_cast<long long>(q_rows), static_cast<long long>(kv_rows));
  return text + (work.ok() ? WorkText(*work, planned.tiles)
                           : "tiles: unknown: " + work.error().got + "\n");
}

Json WorkJson(const WorkList& work) {
  Json tiles = Json::array();
  for (const WorkTile& tile : work.tiles) {
    tiles.push_back({{"sequence", tile.sequence},
                     {"head", tile.head},
                     {"query_begin", tile.query_begin},
                     {"query_rows", tile.query_rows},
                     {"key_tiles", tile.key_tiles}});
  }
  Json workers = Json::array();
  for (const WorkerLoad& worker : work.workers) {
    workers.push_back({{"tiles", worker.tiles}, {"key_tiles", worker.key_tiles}});
  }
  return {{"query_rows", work.query_rows},
          {"key_rows", work.key_rows},
          {"dynamic", work.dynamic},
          {"halves", work.halves},
          {"balance", Balance(work)},
          {"tiles", tiles},
          {"workers", workers}};
}

std::string AsJson(const Planned& planned, const Result<WorkList>& work) {
  const Plan& plan = planned.plan;
  const PlanSettings& settings = plan.settings();
  Json choices = Json::array();
  for (const attention::BackendChoice& choice : plan.choices()) {
    choices.push_back({{"backend", choice.backend},
                       {"chosen", choice.reason.empty()},
                       {"reason", choice.reason}});
  }
  Json json = {{"q_heads", settings.options.q_heads},   {"kv_heads", settings.options.kv_heads},
               {"head_dim", settings.options.head_dim}, {"causal", settings.options.causal},
               {"sequences", settings.max_sequences},   {"segments", settings.max_segments},
               {"query_rows", settings.max_query_rows}};
  if (settings.gpu) {
    json["gpu"] = {{"compute_capability", settings.gpu->compute_capability},
                   {"multiprocessors", settings.gpu->multiprocessors},
                   {"here", planned.assumed.empty()}};
  }
  json["backend"] = plan.backend();
  json["choices"] = choices;
  json["workspace_bytes"] = plan.workspace_bytes();
  json["work"] = work.ok() ? WorkJson(*work) : Json();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int RunPlanAttention(const PlanFlags& flags) {
  const Result<Planned> planned = MakePlan(flags);
  if (!planned.ok()) return Fail(kName, planned.error());
  const Result<WorkList> work = planned->plan.Work(planned->lengths.rows);
  if (!work.ok() && work.error().code != ErrorCode::kUnsupported) return Fail(kName, work.error());
  const Status printed = Print(flags.json ? AsJson(*planned, work) : AsText(*planned, work));
  return printed.ok() ? kExitOk : Fail(kName, printed.error());
}

}  // namespace

Command RegisterPlan(CLI::App& parent) {
  CLI::App* plan = parent.add_subcommand("plan", "How work would be divided, without doing any");
  plan->require_subcommand(1);
  CLI::App* app = plan->add_subcommand("attention", "Tiles, order and back end of attention");
  const auto flags = std::make_shared<PlanFlags>();
  app->footer(kExamples);
  AddTextOption(*app, "--lengths", flags->lengths, "ROWS", "Rows of segments, see below")
      ->required();
  AddTextOption(*app, "--heads", flags->heads, "N", "Query heads")->required();
  AddTextOption(*app, "--kv-heads", flags->kv_heads, "N", "Key and value heads; default: --heads");
  AddTextOption(*app, "--head-dim", flags->head_dim, "N", "Elements of a head; default: 128");
  app->add_option("--dtype", flags->dtype, "bf16, f16 or f32; default: bf16")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"bf16", "f16", "f32"}));
  app->add_flag("--causal", flags->causal, "Aligned bottom right");
  app->add_option("--place", flags->place, "cuda or cpu; default: cuda")
      ->type_name("PLACE")
      ->check(CLI::IsMember({"cuda", "cpu"}));
  AddTextOption(*app, "--gpu", flags->gpu, "CC:SMS",
                "GPU to plan for, like 9.0:132; default: the one here, else an H200");
  AddTextOption(*app, "--threads", flags->threads, "N", "CPU threads; default: one a core");
  app->add_option("--backend", flags->backend, "The only back end to consider")->type_name("NAME");
  app->add_flag("--lse", flags->lse, "With the log-sum-exp of each row");
  app->add_flag("--device-lengths", flags->device_lengths, "For lengths in device memory");
  AddTextOption(*app, "--tiles", flags->tiles, "N", "Tiles to show at each end; default: 5");
  app->add_flag("--json", flags->json, "Print JSON, with every tile");
  return {.app = plan, .run = [flags] { return RunPlanAttention(*flags); }};
}

}  // namespace segue::cli
