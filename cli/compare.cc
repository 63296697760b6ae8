#include "cli/compare.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/parse.h"
#include "cli/table.h"
#include "segue/compare.h"

namespace segue::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kName[] = "compare";
constexpr char kExamples[] = R"(Examples:
  segue compare ours.safetensors reference.safetensors --relative 2e-5
  segue compare ours.png reference.png --tolerance 3 --share 0.999

Exit status 0: equal within the limits given (none given: equal). 1: not. Others: docs/cli.md.)";

struct CompareOptions {
  std::string a, b;
  std::optional<std::string> tolerance, relative, share;
  bool json = false;
};

Result<std::optional<double>> ReadLimit(const std::string& option,
                                        const std::optional<std::string>& text, double high) {
  if (!text.has_value()) return std::optional<double>();
  SEGUE_ASSIGN_OR_RETURN(const double value, ParseDouble(option, *text));
  if (value < 0 || value > high) {
    return Usage(
        option, *text,
        std::isfinite(high) ? Format("a number from 0 to %g", high) : "a number from 0 on");
  }
  return std::optional<double>(value);
}

Result<CompareLimits> ReadLimits(const CompareOptions& options) {
  CompareLimits limits;
  SEGUE_ASSIGN_OR_RETURN(limits.max_abs, ReadLimit("--tolerance", options.tolerance, INFINITY));
  SEGUE_ASSIGN_OR_RETURN(limits.relative_l2, ReadLimit("--relative", options.relative, INFINITY));
  SEGUE_ASSIGN_OR_RETURN(limits.within_level, ReadLimit("--share", options.share, 1));
  return limits;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  }
  return text + "]";
}

// Where a flat row-major index lies: "[3, 0, 17]".
std::string IndexText(int64_t flat, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return ShapeText(index);
}

// Why two tensors cannot be laid side by side; empty if they can.
std::string Mismatch(const TensorDifference& difference) {
  if (difference.dtype_b.empty()) return "in A only";
  if (difference.dtype_a.empty()) return "in B only";
  if (difference.comparable()) return "";
  return "shapes " + ShapeText(difference.shape_a) + " and " + ShapeText(difference.shape_b);
}

std::string AsText(const CompareReport& report, const CompareLimits& limits) {
  Table table({2, 3, 4, 5});
  table.Add({"", "tensor", "max abs", "rel L2", "PSNR dB", "within 1/255", "first difference"});
  for (const TensorDifference& d : report.tensors) {
    const std::string verdict = IsWithin(d, limits) ? "ok" : "DIFFERS";
    if (const std::string mismatch = Mismatch(d); !mismatch.empty()) {
      table.Add({verdict, OneLine(d.name), "-", "-", "-", "-", mismatch});
      continue;
    }
    std::string first = "none";
    if (d.first_difference.has_value()) {
      first = IndexText(*d.first_difference, d.shape_a) +
              Format(", %lld of %lld differ", static_cast<long long>(d.different),
                     static_cast<long long>(d.elements));
    }
    if (d.non_finite_differences > 0) {
      first += Format(", %lld non-finite", static_cast<long long>(d.non_finite_differences));
    }
    table.Add({verdict, OneLine(d.name), Format("%.4g", d.max_abs), Format("%.4g", d.relative_l2),
               Format("%.2f", d.psnr),
               d.within_level.has_value() ? Format("%.4f %%", *d.within_level * 100) : "-", first});
  }
  return table.Text();
}

// JSON has no infinity: null says it.
Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

std::string AsJson(const CompareReport& report, const CompareLimits& limits, bool equal) {
  Json list = Json::array();
  for (const TensorDifference& d : report.tensors) {
    Json json = {{"name", d.name},       {"within", IsWithin(d, limits)}, {"dtype_a", d.dtype_a},
                 {"dtype_b", d.dtype_b}, {"shape_a", d.shape_a},          {"shape_b", d.shape_b}};
    if (d.comparable()) {
      json["elements"] = d.elements;
      json["max_abs"] = Number(d.max_abs);
      json["relative_l2"] = Number(d.relative_l2);
      json["psnr_db"] = Number(d.psnr);
      if (d.within_level.has_value()) json["share_within_1_255"] = *d.within_level;
      json["different"] = d.different;
      json["non_finite_differences"] = d.non_finite_differences;
      if (d.first_difference.has_value()) json["first_difference"] = *d.first_difference;
    }
    list.push_back(std::move(json));
  }
  const Json json = {{"kind", report.kind == FileKind::kPicture ? "picture" : "tensors"},
                     {"equal", equal},
                     {"tensors", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> Compare(const CompareOptions& options) {
  SEGUE_ASSIGN_OR_RETURN(const CompareLimits limits, ReadLimits(options));
  SEGUE_ASSIGN_OR_RETURN(const CompareReport report, CompareFiles(options.a, options.b));
  if (limits.within_level.has_value() && report.kind != FileKind::kPicture) {
    return Usage("--share", "tensor files", "two PNG files");
  }
  const bool equal = std::all_of(report.tensors.begin(), report.tensors.end(),
                                 [&](const TensorDifference& d) { return IsWithin(d, limits); });
  SEGUE_RETURN_IF_ERROR(
      Print(options.json ? AsJson(report, limits, equal) : AsText(report, limits)));
  return equal ? kExitOk : kExitNo;
}

}  // namespace

Command RegisterCompare(CLI::App& parent) {
  CLI::App* app =
      parent.add_subcommand(kName, "Print how far two tensor files or two pictures are apart");
  const auto options = std::make_shared<CompareOptions>();
  app->footer(kExamples);
  app->add_option("A", options->a, "A safetensors or PNG file")->type_name("")->required();
  app->add_option("B", options->b, "Another of the same kind, the reference")
      ->type_name("")
      ->required();
  AddTextOption(*app, "--tolerance", options->tolerance, "X",
                "Largest |a - b| that counts as equal (pictures: in levels of 255)");
  AddTextOption(*app, "--relative", options->relative, "X",
                "Largest |a - b| / |b| (Euclidean norms, each tensor) that counts as equal");
  AddTextOption(*app, "--share", options->share, "X",
                "Least share of pixels within 1/255, 0 to 1 (pictures)");
  app->add_flag("--json", options->json, "Print JSON");
  return {.app = app, .run = [options] {
            const Result<int> status = Compare(*options);
            return status.ok() ? *status : Fail(kName, status.error());
          }};
}

}  // namespace segue::cli
