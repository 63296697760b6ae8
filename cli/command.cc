#include "cli/command.h"

namespace segue::cli {

CLI::Option* AddTextOption(CLI::App& app, const std::string& name,
                           std::optional<std::string>& value, const std::string& type,
                           const std::string& help) {
  const auto keep = [&value](const std::string& text) { value = text; };
  return app.add_option_function<std::string>(name, keep, help)->type_name(type);
}

}  // namespace segue::cli
