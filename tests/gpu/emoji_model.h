// Where tests find the model that comes with the sources.
#pragma once

#include <filesystem>
#include <string>

namespace segue {

// That of the sources, or of the working directory where the program was carried.
inline std::string EmojiModel() {
  const std::string in_sources = std::string(SEGUE_SOURCE_DIR) + "/models/emoji";
  return std::filesystem::exists(in_sources) ? in_sources : "models/emoji";
}

}  // namespace segue
