#include "cli/quality_suite.h"

#include <limits>
#include <sstream>

#include "cli/console.h"
#include "cli/parse.h"
#include "segue/quality.h"
#include "segue/utf8.h"

namespace segue::cli {
namespace {

constexpr int kMaxSteps = 1000;
constexpr char kFields[] = "seed, size, steps, guidance and a prompt";

Result<Request> ParseLine(const std::string& where, const std::string& line) {
  std::istringstream fields(line);
  std::string seed;
  std::string size;
  std::string steps;
  std::string guidance;
  Request request;
  fields >> seed >> size >> steps >> guidance >> std::ws;
  std::getline(fields, request.prompt);
  if (request.prompt.empty()) return Usage(where, "'" + line + "'", kFields);
  if (FindInvalidUtf8(request.prompt).has_value()) {
    return Usage(where, "bytes that are not UTF-8", "UTF-8 text");
  }
  SEGUE_ASSIGN_OR_RETURN(request.seed, ParseUint64(where + ": seed", seed));
  SEGUE_ASSIGN_OR_RETURN(const PictureSize pixels, ParseSize(where + ": size", size));
  request.width = pixels.width;
  request.height = pixels.height;
  SEGUE_ASSIGN_OR_RETURN(request.steps, ParseInt(where + ": steps", steps, 1, kMaxSteps));
  SEGUE_ASSIGN_OR_RETURN(request.guidance, ParseDouble(where + ": guidance", guidance));
  return request;
}

}  // namespace

Result<std::vector<Request>> ParseQualitySuite(const std::string& name, const std::string& text) {
  std::vector<Request> requests;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line[first] == '#') continue;
    SEGUE_ASSIGN_OR_RETURN(Request request,
                           ParseLine(name + ", line " + std::to_string(number), line));
    requests.push_back(std::move(request));
  }
  if (static_cast<int>(requests.size()) < kLeastPictures) {
    return Usage(name, std::to_string(requests.size()) + " pictures",
                 "at least " + std::to_string(kLeastPictures));
  }
  return requests;
}

}  // namespace segue::cli
