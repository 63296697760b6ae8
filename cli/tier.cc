#include "cli/tier.h"

#include <algorithm>
#include <sstream>

#include "cli/console.h"

namespace segue::cli {

Result<Quality> ReadTier(const std::string& option, const std::string& text) {
  const Result<Quality> tier = ParseQuality(text);
  if (!tier.ok()) return Usage(option, tier.error().got, tier.error().wanted);
  return *tier;
}

Result<std::vector<std::string>> ReadGateNames(const std::string& option, const std::string& text) {
  const std::span<const GateInfo> known = QualityGates();
  std::vector<std::string> names;
  std::istringstream list(text + ",");
  for (std::string name; std::getline(list, name, ',');) {
    const auto is_name = [&name](const GateInfo& gate) { return gate.name == name; };
    if (std::none_of(known.begin(), known.end(), is_name)) {
      std::string wanted = "gates of:";
      for (const GateInfo& gate : known) wanted += " " + gate.name;
      return Usage(option, "'" + name + "'", wanted);
    }
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return Usage(option, name + " twice", "each gate once");
    }
    names.push_back(name);
  }
  return names;
}

}  // namespace segue::cli
