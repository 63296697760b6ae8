// Quality tiers and gates as the command line writes them.
#pragma once

#include <string>
#include <vector>

#include "segue/quality.h"

namespace segue::cli {

// Errors name the option and the tiers.
Result<Quality> ReadTier(const std::string& option, const std::string& text);

// "a,b". Errors: a name that no gate has, or one twice.
Result<std::vector<std::string>> ReadGateNames(const std::string& option, const std::string& text);

}  // namespace segue::cli
