#include "model/weights/config_files.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>
#include <vector>

#include "model/weights/json.h"
#include "model/weights/json_fields.h"

namespace segue::model {
namespace {

// A Validate() error, with the file put before the field.
template <typename Config>
Result<Config> Validated(Config config, const std::string& file) {
  Status status = config.Validate();
  if (status.ok()) return config;
  Error error = status.error();
  error.argument = file + ": " + error.argument;
  return error;
}

// One component of model_index.json: ["library", "Class"].
void ReadComponent(const std::string& key, std::initializer_list<const char*> known,
                   JsonFields& fields, std::string* class_name) {
  std::vector<std::string> pair;
  fields.Read(key, &pair);
  if (!fields.status().ok()) return;
  std::string wanted;
  for (const char* name : known) wanted += (wanted.empty() ? "" : " or ") + std::string(name);
  if (!fields.Has(key)) return fields.Fail(ErrorCode::kNotFound, key, "nothing", wanted);
  if (pair.size() != 2) {
    return fields.Fail(ErrorCode::kCorrupt, key, std::to_string(pair.size()) + " strings",
                       "a library and a class name");
  }
  const bool found =
      std::any_of(known.begin(), known.end(), [&](const char* name) { return pair[1] == name; });
  if (!found) return fields.Fail(ErrorCode::kUnsupported, key, "class " + Quote(pair[1]), wanted);
  *class_name = pair[1];
}

// Quantised checkpoints say so in the configuration of the component.
void RefuseQuantised(JsonFields& fields) {
  if (!fields.Has("quantization_config")) return;
  std::string method = "an unnamed method";
  if (const Json* name = fields.Member("quantization_config").Find("quant_method")) {
    method = name->Describe();
  }
  fields.Fail(ErrorCode::kUnsupported, "quantization_config", method,
              "no quantisation (F32, F16 or BF16 weights)");
}

bool ParseInteger(std::string_view text, int* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// "128x96" into width and height.
void ReadSize(JsonFields& fields, ModelDefaults* defaults) {
  std::string size;
  fields.Read("size", &size);
  if (size.empty() || !fields.status().ok()) return;
  // A stated maximum of the model's own default; requests have the engine's.
  constexpr int kMaxSide = 16384;
  const size_t cross = size.find('x');
  int width = 0;
  int height = 0;
  const bool sound = cross != std::string::npos &&
                     ParseInteger(std::string_view(size).substr(0, cross), &width) &&
                     ParseInteger(std::string_view(size).substr(cross + 1), &height) &&
                     width >= 16 && height >= 16 && width <= kMaxSide && height <= kMaxSide &&
                     width % 16 == 0 && height % 16 == 0;
  if (!sound) {
    return fields.Fail(ErrorCode::kCorrupt, "size", Quote(size),
                       "WIDTHxHEIGHT, multiples of 16 from 16 to 16384");
  }
  defaults->width = width;
  defaults->height = height;
}

// Rotary settings: transformers 4 writes rope_theta and rope_scaling, transformers 5 puts both
// into rope_parameters (and reads rope_scaling first where there is one).
void ReadRope(const std::string& file, const std::string& path, int64_t head_dim,
              JsonFields& fields, TextEncoderConfig* config) {
  fields.Read("rope_theta", &config->rope_theta);
  const std::string key = fields.Has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  if (!fields.Has(key) || !fields.status().ok()) return;
  JsonFields rope(fields.Member(key), file, path.empty() ? key : path + "." + key);
  rope.Read("rope_theta", &config->rope_theta);
  std::string type = "default";
  rope.Read("type", &type);
  rope.Read("rope_type", &type);
  if (type != "default" && type != "mrope") {
    rope.Fail(ErrorCode::kUnsupported, "rope_type", Quote(type), "\"default\" or \"mrope\"");
  }
  double rotary_factor = 1;
  rope.Read("partial_rotary_factor", &rotary_factor);
  if (rotary_factor != 1) {
    rope.Fail(ErrorCode::kUnsupported, "partial_rotary_factor", std::to_string(rotary_factor), "1");
  }
  std::vector<int64_t> sections;
  rope.Read("mrope_section", &sections);
  int64_t pairs = 0;
  // Each below the sum they must reach, so that the sum cannot overflow.
  for (int64_t section : sections) {
    pairs = section < 0 || section > head_dim || pairs > head_dim ? head_dim : pairs + section;
  }
  if (!sections.empty() && pairs != head_dim / 2) {
    rope.Fail(ErrorCode::kCorrupt, "mrope_section", "sections that do not add up",
              "a sum of head_dim / 2, " + std::to_string(head_dim / 2));
  }
  if (!rope.status().ok()) {
    const Error& error = rope.status().error();
    fields.Fail(error.code, error.argument.substr(file.size() + 2), error.got, error.wanted);
  }
}

void ReadTextFields(JsonFields& fields, TextEncoderConfig* config) {
  fields.Read("hidden_size", &config->hidden_size);
  fields.Read("intermediate_size", &config->intermediate_size);
  fields.Read("num_hidden_layers", &config->num_hidden_layers);
  fields.Read("num_attention_heads", &config->num_attention_heads);
  if (fields.IsNull("num_key_value_heads")) {
    config->num_key_value_heads = config->num_attention_heads;
  }
  fields.Read("num_key_value_heads", &config->num_key_value_heads);
  fields.Read("vocab_size", &config->vocab_size);
  fields.Read("max_position_embeddings", &config->max_position_embeddings);
  fields.Read("rms_norm_eps", &config->rms_norm_eps);
  fields.Read("tie_word_embeddings", &config->tie_word_embeddings);
  fields.OnlyString("hidden_act", "silu");
  fields.OnlyBool("use_sliding_window", false, "attention over the whole prompt");
  std::vector<std::string> layer_types;
  fields.Read("layer_types", &layer_types);
  for (const std::string& type : layer_types) {
    if (type != "full_attention") {
      fields.Fail(ErrorCode::kUnsupported, "layer_types", Quote(type), "\"full_attention\"");
    }
  }
  RefuseQuantised(fields);
}

}  // namespace

Result<PipelineClasses> ParseModelIndex(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields fields(json, file);
  if (fields.status().ok() && !fields.Has("_class_name")) {
    fields.Fail(ErrorCode::kNotFound, "_class_name", "nothing", "\"QwenImagePipeline\"");
  }
  fields.OnlyString("_class_name", "QwenImagePipeline");
  PipelineClasses classes;
  ReadComponent("scheduler", {"FlowMatchEulerDiscreteScheduler"}, fields, &classes.scheduler);
  ReadComponent("text_encoder", {"Qwen2_5_VLForConditionalGeneration"}, fields,
                &classes.text_encoder);
  ReadComponent("tokenizer", {"Qwen2Tokenizer", "Qwen2TokenizerFast"}, fields, &classes.tokenizer);
  ReadComponent("transformer", {"QwenImageTransformer2DModel"}, fields, &classes.transformer);
  ReadComponent("vae", {"AutoencoderKLQwenImage"}, fields, &classes.vae);
  SEGUE_RETURN_IF_ERROR(fields.status());
  return classes;
}

Result<DitConfig> ParseDitConfig(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields fields(json, file);
  DitConfig config;
  fields.OnlyString("_class_name", "QwenImageTransformer2DModel");
  fields.Read("num_layers", &config.num_layers);
  fields.Read("num_attention_heads", &config.num_attention_heads);
  fields.Read("attention_head_dim", &config.attention_head_dim);
  fields.Read("joint_attention_dim", &config.joint_attention_dim);
  fields.Read("in_channels", &config.in_channels);
  fields.Read("out_channels", &config.out_channels);
  fields.Read("patch_size", &config.patch_size);
  std::vector<int64_t> axes(config.axes_dims_rope.begin(), config.axes_dims_rope.end());
  fields.Read("axes_dims_rope", &axes);
  if (axes.size() == config.axes_dims_rope.size()) {
    std::copy(axes.begin(), axes.end(), config.axes_dims_rope.begin());
  } else {
    fields.Fail(ErrorCode::kCorrupt, "axes_dims_rope", std::to_string(axes.size()) + " entries",
                "3");
  }
  fields.OnlyBool("guidance_embeds", false, "guidance-distilled models are not supported");
  fields.OnlyBool("zero_cond_t", false, "image-editing models are not supported");
  fields.OnlyBool("use_additional_t_cond", false, "layered models are not supported");
  fields.OnlyBool("use_layer3d_rope", false, "layered models are not supported");
  RefuseQuantised(fields);
  SEGUE_RETURN_IF_ERROR(fields.status());
  return Validated(config, file);
}

Result<TextEncoderConfig> ParseTextEncoderConfig(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields root(json, file);
  root.OnlyString("model_type", "qwen2_5_vl");
  std::vector<std::string> architectures;
  root.Read("architectures", &architectures);
  for (const std::string& name : architectures) {
    if (name != "Qwen2_5_VLForConditionalGeneration") {
      root.Fail(ErrorCode::kUnsupported, "architectures", Quote(name),
                "\"Qwen2_5_VLForConditionalGeneration\"");
    }
  }
  RefuseQuantised(root);
  TextEncoderConfig config;
  root.Read("tie_word_embeddings", &config.tie_word_embeddings);
  SEGUE_RETURN_IF_ERROR(root.status());

  const bool nested = root.Has("text_config");
  const std::string path = nested ? "text_config" : "";
  JsonFields fields(nested ? root.Member("text_config") : json, file, path);
  const bool tied = config.tie_word_embeddings;
  ReadTextFields(fields, &config);
  // Either place ties them, as the reference has it.
  config.tie_word_embeddings = config.tie_word_embeddings || tied;
  SEGUE_RETURN_IF_ERROR(fields.status());
  SEGUE_ASSIGN_OR_RETURN(config, Validated(config, file));
  ReadRope(file, path, config.head_dim(), fields, &config);
  int64_t head_dim = config.head_dim();
  fields.Read("head_dim", &head_dim);
  if (head_dim != config.head_dim()) {
    fields.Fail(ErrorCode::kUnsupported, "head_dim", std::to_string(head_dim),
                "hidden_size / num_attention_heads, " + std::to_string(config.head_dim()));
  }
  SEGUE_RETURN_IF_ERROR(fields.status());
  return Validated(config, file);
}

Result<VaeConfig> ParseVaeConfig(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields fields(json, file);
  VaeConfig config;
  fields.OnlyString("_class_name", "AutoencoderKLQwenImage");
  fields.Read("base_dim", &config.base_dim);
  fields.Read("z_dim", &config.z_dim);
  fields.Read("dim_mult", &config.dim_mult);
  fields.Read("num_res_blocks", &config.num_res_blocks);
  // The file's own spelling. attn_scales shapes the encoder only, which the engine does not run.
  fields.Read("temperal_downsample", &config.temporal_downsample);
  fields.Read("input_channels", &config.input_channels);
  fields.Read("latents_mean", &config.latents_mean);
  fields.Read("latents_std", &config.latents_std);
  RefuseQuantised(fields);
  SEGUE_RETURN_IF_ERROR(fields.status());
  return Validated(std::move(config), file);
}

Result<FlowMatchConfig> ParseFlowMatchConfig(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields fields(json, file);
  FlowMatchConfig config;
  fields.OnlyString("_class_name", "FlowMatchEulerDiscreteScheduler");
  fields.Read("num_train_timesteps", &config.num_train_timesteps);
  fields.Read("shift", &config.shift);
  fields.Read("use_dynamic_shifting", &config.use_dynamic_shifting);
  fields.Read("base_shift", &config.base_shift);
  fields.Read("max_shift", &config.max_shift);
  fields.Read("base_image_seq_len", &config.base_image_seq_len);
  fields.Read("max_image_seq_len", &config.max_image_seq_len);
  double terminal = 0;
  fields.Read("shift_terminal", &terminal);
  // The reference stretches when the value is true in Python's sense: 0 means no stretch.
  if (terminal != 0) config.shift_terminal = terminal;
  std::string time_shift = "exponential";
  fields.Read("time_shift_type", &time_shift);
  if (time_shift == "linear") {
    config.time_shift = TimeShift::kLinear;
  } else if (time_shift != "exponential") {
    fields.Fail(ErrorCode::kCorrupt, "time_shift_type", Quote(time_shift),
                "\"exponential\" or \"linear\"");
  }
  for (const char* key : {"invert_sigmas", "stochastic_sampling", "use_karras_sigmas",
                          "use_exponential_sigmas", "use_beta_sigmas"}) {
    fields.OnlyBool(key, false, "this schedule is not supported");
  }
  SEGUE_RETURN_IF_ERROR(fields.status());
  return Validated(config, file);
}

Result<ModelDefaults> ParseModelDefaults(std::string_view text, const std::string& file) {
  SEGUE_ASSIGN_OR_RETURN(const Json json, ParseJson(text, file));
  JsonFields fields(json, file);
  ModelDefaults defaults;
  ReadSize(fields, &defaults);
  int64_t steps = defaults.steps;
  fields.Read("steps", &steps);
  if (steps < 1 || steps > 1000) {
    fields.Fail(ErrorCode::kCorrupt, "steps", std::to_string(steps), "1..1000");
  } else {
    defaults.steps = static_cast<int>(steps);
  }
  fields.Read("guidance", &defaults.guidance);
  // Written so that a NaN fails too.
  if (!(defaults.guidance >= 0 && defaults.guidance <= 1000)) {
    fields.Fail(ErrorCode::kCorrupt, "guidance", std::to_string(defaults.guidance), "0..1000");
  }
  fields.Read("negative_prompt", &defaults.negative_prompt);
  SEGUE_RETURN_IF_ERROR(fields.status());
  return defaults;
}

}  // namespace segue::model
