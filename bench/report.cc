#include "bench/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

namespace segue::bench {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

std::string Number(const std::optional<double>& value, int decimals) {
  if (!value) return "-";
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", decimals, *value);
  return text.data();
}

}  // namespace

void SetTimes(const Comparison& comparison, double work, double unit_scale, Row* row) {
  row->median_us = comparison.ours.median_us;
  row->min_us = comparison.ours.min_us;
  row->max_us = comparison.ours.max_us;
  row->rate = work / (comparison.ours.median_us * 1e-6) / unit_scale;
  if (comparison.peer.samples == 0) return;
  row->peer_median_us = comparison.peer.median_us;
  row->ratio = comparison.peer.median_us / comparison.ours.median_us;
}

std::string ReportTable(const Report& report) {
  std::vector<std::array<std::string, 8>> table = {
      {"case", "variant", "mode", "median us", "rate", "peer", "peer us", "ratio"}};
  for (const Row& row : report.rows) {
    table.push_back({row.case_name, row.variant, row.mode, Number(row.median_us, 1),
                     Number(row.rate, row.rate && *row.rate < 10 ? 3 : 1) + " " + row.unit,
                     row.peer.empty() ? "-" : row.peer + " " + row.peer_version,
                     Number(row.peer_median_us, 1), Number(row.ratio, 2)});
  }
  std::array<size_t, 8> widths{};
  for (const auto& cells : table) {
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string text = report.device + ", commit " + report.commit + ", " + report.date + "\n";
  for (const auto& cells : table) {
    for (size_t i = 0; i < cells.size(); ++i) {
      text += cells[i];
      if (i + 1 < cells.size()) text.append(widths[i] - cells[i].size() + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

std::string ReportJson(const Report& report) {
  Json json = {{"device", report.device},     {"driver", OrNull(report.driver)},
               {"cuda", OrNull(report.cuda)}, {"commit", report.commit},
               {"date", report.date},         {"rows", Json::array()}};
  for (const Row& row : report.rows) {
    json["rows"].push_back({{"case", row.case_name},
                            {"variant", row.variant},
                            {"mode", row.mode},
                            {"median_us", OrNull(row.median_us)},
                            {"min_us", OrNull(row.min_us)},
                            {"max_us", OrNull(row.max_us)},
                            {"rate", OrNull(row.rate)},
                            {"unit", row.unit},
                            {"peer", OrNull(row.peer)},
                            {"peer_version", OrNull(row.peer_version)},
                            {"peer_median_us", OrNull(row.peer_median_us)},
                            {"ratio", OrNull(row.ratio)},
                            {"sm_clock_mhz", OrNull(row.sm_clock_mhz)},
                            {"power_w", OrNull(row.power_w)},
                            {"temp_c", OrNull(row.temp_c)}});
  }
  return json.dump(1) + "\n";
}

std::string ProcessorName(int threads) {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  std::string name = "unknown processor";
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      name = line.substr(line.find(": ") + 2);
      break;
    }
  }
  return name + ", " + std::to_string(threads) + (threads == 1 ? " thread" : " threads");
}

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 16> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc);
  return text.data();
}

}  // namespace segue::bench
