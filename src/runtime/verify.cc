#include <algorithm>
#include <filesystem>
#include <utility>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_files.h"
#include "model/weights/checkpoint.h"
#include "model/weights/config_files.h"
#include "model/weights/finite_scan.h"
#include "model/weights/json.h"
#include "runtime/checkpoint_networks.h"
#include "runtime/noise_schedule.h"
#include "runtime/settings.h"
#include "segue/checkpoint.h"

namespace segue {
namespace {

// Collects what holds and what does not, going on after a failure wherever that makes sense: one
// run names every damaged file.
class Verifier {
 public:
  explicit Verifier(std::string directory) : directory_(std::move(directory)) {}

  VerifyReport Run() {
    const bool configs = CheckConfigs();
    bool tables = true;
    for (const auto& [component, stem] :
         {std::pair("transformer", "diffusion_pytorch_model"), std::pair("text_encoder", "model"),
          std::pair("vae", "diffusion_pytorch_model")}) {
      tables = CheckTable(component, stem) && tables;
    }
    const bool tokenizer = CheckTokenizer();
    if (configs && tables) CheckTogether(tokenizer);
    return std::move(report_);
  }

 private:
  void Pass(std::string line) { report_.checks.push_back(std::move(line)); }
  bool Fail(const Error& error) {
    report_.problems.push_back(error.Message());
    return false;
  }
  bool Fail(std::string line) {
    report_.problems.push_back(std::move(line));
    return false;
  }

  template <typename Config>
  bool CheckConfig(const std::string& name,
                   Result<Config> (*parse)(std::string_view, const std::string&)) {
    const std::string path = directory_ + "/" + name;
    const Result<std::string> text = model::ReadTextFile(path, model::kMaxConfigBytes);
    if (!text.ok()) return Fail(text.error());
    const Result<Config> config = parse(*text, path);
    if (!config.ok()) return Fail(config.error());
    return true;
  }

  bool CheckConfigs() {
    bool sound = CheckConfig("model_index.json", &model::ParseModelIndex);
    sound = CheckConfig("transformer/config.json", &model::ParseDitConfig) && sound;
    sound = CheckConfig("text_encoder/config.json", &model::ParseTextEncoderConfig) && sound;
    sound = CheckConfig("vae/config.json", &model::ParseVaeConfig) && sound;
    sound = CheckConfig("scheduler/scheduler_config.json", &model::ParseFlowMatchConfig) && sound;
    std::error_code error;
    if (std::filesystem::exists(directory_ + "/segue.json", error)) {
      sound = CheckConfig("segue.json", &model::ParseModelDefaults) && sound;
    }
    if (sound) Pass("configurations: well-formed, of known classes, no unsupported variant");
    return sound;
  }

  bool CheckTable(const std::string& component, const std::string& stem) {
    const auto table = model::TensorTable::Open(directory_ + "/" + component, stem, component);
    if (!table.ok()) return Fail(table.error());
    Pass(component + ": " + std::to_string(table->files().size()) +
         (table->files().size() == 1 ? " file, " : " files, ") +
         std::to_string(table->items().size()) + " tensors, " +
         std::to_string(table->total_parameters()) + " parameters, headers consistent");
    const auto found = model::FindNonFinite(*table);
    for (const model::NonFiniteTensor& tensor : found) {
      Fail(Error{ErrorCode::kNonFinite, "verify weights",
                 tensor.file->path() + ": tensor " + model::Quote(tensor.entry->name),
                 std::to_string(tensor.count) + " of " +
                     std::to_string(tensor.entry->shape.NumElements()) +
                     " values not finite, the first at index " + std::to_string(tensor.first),
                 "numbers"});
    }
    if (found.empty()) Pass(component + ": every weight is finite");
    return found.empty();
  }

  bool CheckTokenizer() {
    const std::string directory = directory_ + "/tokenizer";
    const auto files = model::ReadTokenizerFiles(directory);
    if (!files.ok()) return Fail(files.error());
    const auto tokenizer = model::Tokenizer::FromFiles(*files);
    if (!tokenizer.ok()) return Fail(tokenizer.error());
    id_bound_ = tokenizer->id_bound();
    const Status prompt_template = tokenizer->CheckTemplate();
    if (!prompt_template.ok()) return Fail(prompt_template.error());
    Pass("tokenizer: the template is 34 ids before the prompt and 5 after it");
    return CheckTokenizerForms(directory, *files);
  }

  // Where a directory has both forms, loaders differ in which they read.
  bool CheckTokenizerForms(const std::string& directory, const model::TokenizerFiles& files) {
    const auto older = model::ReadOlderTokenizerFiles(directory);
    if (!older.ok()) {
      return older.error().code == ErrorCode::kNotFound ? true : Fail(older.error());
    }
    if (older->where == files.where) return true;
    const auto sorted = [](auto values) {
      std::sort(values.begin(), values.end());
      return values;
    };
    const auto ids = [&sorted](const std::vector<model::AddedToken>& tokens) {
      std::vector<std::pair<std::string, int64_t>> pairs;
      pairs.reserve(tokens.size());
      for (const model::AddedToken& token : tokens) pairs.emplace_back(token.content, token.id);
      return sorted(std::move(pairs));
    };
    if (sorted(files.bpe.vocabulary) == sorted(older->bpe.vocabulary) &&
        files.bpe.merges == older->bpe.merges && ids(files.added) == ids(older->added)) {
      Pass("tokenizer: tokenizer.json agrees with vocab.json and merges.txt");
      return true;
    }
    return Fail(Error{ErrorCode::kCorrupt, "verify tokenizer", files.where,
                      "tokens other than those of vocab.json, merges.txt and their added tokens",
                      "the same tokenizer in both forms"});
  }

  // What needs all components: sizes that fit, the networks' weights, a schedule.
  void CheckTogether(bool tokenizer) {
    const auto checkpoint = model::Checkpoint::Open(directory_);
    if (!checkpoint.ok()) {
      Fail(checkpoint.error());
      return;
    }
    const int64_t vocabulary = checkpoint->text_encoder_config().vocab_size;
    if (tokenizer && id_bound_ > vocabulary) {
      Fail(Error{ErrorCode::kCorrupt, "verify tokenizer", "tokenizer: largest id",
                 std::to_string(id_bound_ - 1),
                 "less than the text encoder's vocab_size, " + std::to_string(vocabulary)});
    }
    const auto unused = runtime::CheckNetworks(*checkpoint);
    if (!unused.ok()) {
      Fail(unused.error());
      return;
    }
    Pass("networks: every weight is there, in its shape and in F32, F16 or BF16");
    for (const auto& [component, names] : *unused) CheckUnused(component, names);
    CheckDefaults(*checkpoint);
  }

  void CheckUnused(const std::string& component, const std::set<std::string>& names) {
    int64_t known = 0;
    std::vector<std::string> unknown;
    for (const std::string& name : names) {
      if (runtime::IsKnownUnused(component, name)) {
        ++known;
      } else {
        unknown.push_back(name);
      }
    }
    if (known > 0) {
      Pass(component + ": " + std::to_string(known) +
           " tensors that making a picture does not use");
    }
    for (const std::string& name : unknown) {
      Fail(Error{ErrorCode::kUnsupported, "verify weights",
                 component + ": tensor " + model::Quote(name), "a tensor the network does not have",
                 "the tensors of its class only"});
    }
  }

  void CheckDefaults(const model::Checkpoint& checkpoint) {
    const auto settings = runtime::ResolveSettings(Request(), checkpoint.defaults(),
                                                   checkpoint.dit_config().in_channels);
    if (!settings.ok()) {
      Fail(settings.error());
      return;
    }
    const auto schedule = runtime::MakeNoiseSchedule(checkpoint.flow_match_config(),
                                                     settings->steps, settings->image_rows());
    if (!schedule.ok()) {
      Fail(schedule.error());
      return;
    }
    Pass("defaults: " + std::to_string(settings->width) + "x" + std::to_string(settings->height) +
         " in " + std::to_string(settings->steps) + " steps has a schedule");
  }

  std::string directory_;
  VerifyReport report_;
  int64_t id_bound_ = 0;
};

}  // namespace

Result<VerifyReport> VerifyCheckpoint(const std::string& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return Error{ErrorCode::kNotFound, "verify checkpoint", directory, "no directory",
                 "a checkpoint directory with a model_index.json"};
  }
  return Verifier(directory).Run();
}

}  // namespace segue
