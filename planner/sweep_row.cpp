// SPDX-License-Identifier: Apache-2.0
// One configuration as a row. Names are those of the other documents: snake_case with units; empty, or null, where
// something does not apply.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "planner/setting_values.hpp"
#include "planner/sweep.hpp"
#include "reports/csv.hpp"

namespace headroom {
namespace {

/// Cells in the order of the columns. Names are only kept where they are asked for.
class Cells {
 public:
    Cells(RowFormat format, bool names_only) : json_(format == RowFormat::json_lines), names_only_(names_only) {}

    void text(std::string_view name, std::string_view value) { put(name, value, true); }
    void number(std::string_view name, std::int64_t value) { put(name, fmt::format_int(value).c_str(), false); }
    void real(std::string_view name, double value) {
        std::array<char, 32> digits{};
        const auto end = fmt::format_to_n(digits.data(), digits.size(), "{:.9g}", value).out;
        put(name, {digits.data(), static_cast<std::size_t>(end - digits.data())}, false);
    }
    void truth(std::string_view name, bool value) { put(name, value ? "true" : "false", false); }
    void nothing(std::string_view name) { put(name, "", false); }
    void setting(std::string_view name, const SettingValue& value) {
        if (const auto* word = std::get_if<std::string>(&value)) return text(name, *word);
        put(name, to_string(value), false);
    }

    std::string line() {
        if (json_) line_ += '}';
        line_ += '\n';
        return std::move(line_);
    }

 private:
    void put(std::string_view name, std::string_view value, bool quotes) {
        if (!line_.empty()) line_ += ',';
        if (names_only_) {
            line_ += name;
        } else if (!json_) {
            // The first cell is the model's name, which is never empty.
            line_ += csv_field(value);
        } else {
            if (line_.empty()) line_ += '{';
            line_ += '"';
            line_ += name;
            line_ += "\":";
            if (value.empty()) {
                line_ += "null";
            } else if (quotes) {
                append_quoted(value);
            } else {
                line_ += value;
            }
        }
    }

    void append_quoted(std::string_view value) {
        line_ += '"';
        for (const char c : value) {
            if (c == '"' || c == '\\') line_ += '\\';
            if (static_cast<unsigned char>(c) < ' ') {
                line_ += fmt::format("\\u{:04x}", static_cast<int>(c));
            } else {
                line_ += c;
            }
        }
        line_ += '"';
    }

    bool json_, names_only_;
    std::string line_;
};

std::string column_name(std::string_view key) {
    if (key == "context") return "context_tokens";
    std::string name(key);
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
}

/// Column names of the settings, made once.
const std::vector<std::string>& setting_columns() {
    static const std::vector<std::string> columns = [] {
        std::vector<std::string> names;
        for (const NamedSetting& setting : setting_values(Settings{})) names.push_back(column_name(setting.key));
        return names;
    }();
    return columns;
}

void inputs(Cells& cells, const Transformer& model, const Cluster& cluster, const std::vector<NamedSetting>& settings) {
    cells.text("model", model.name);
    cells.text("cluster", cluster.name);
    cells.number("nodes", cluster.nodes);
    cells.number("gpus", cluster.gpus());
    const std::vector<std::string>& columns = setting_columns();
    for (std::size_t i = 0; i < settings.size(); ++i) cells.setting(columns[i], settings[i].value);
}

constexpr std::array memory_columns{"device_usable_bytes", "device_peak_bytes", "host_usable_bytes_per_node",
                                    "host_peak_bytes_per_node"};
constexpr std::array time_columns{"step_seconds",
                                  "step_seconds_low",
                                  "step_seconds_high",
                                  "tokens_per_second_per_gpu",
                                  "tokens_per_second_per_gpu_low",
                                  "tokens_per_second_per_gpu_high",
                                  "mfu"};

void times(Cells& cells, const SweepSpeed& speed) {
    const std::array values{speed.seconds.value,
                            speed.seconds_low.value,
                            speed.seconds_high.value,
                            speed.tokens_per_second_per_gpu,
                            speed.tokens_per_second_per_gpu_low,
                            speed.tokens_per_second_per_gpu_high,
                            speed.mfu};
    for (std::size_t i = 0; i < values.size(); ++i) cells.real(time_columns[i], values[i]);
    cells.truth("inside_calibrated_domain", speed.domain == 0);
}

template <class Columns>
void nothing(Cells& cells, const Columns& columns) {
    for (const char* column : columns) cells.nothing(column);
}

}  // namespace

std::string RowWriter::heading() const {
    if (format_ == RowFormat::json_lines) return {};
    Cells cells(format_, true);
    inputs(cells, grid_.models.front(), grid_.clusters.front(), setting_values(Settings{}));
    cells.nothing("status");
    cells.nothing("reason");
    cells.nothing("beyond_shipped_code");
    nothing(cells, memory_columns);
    nothing(cells, time_columns);
    cells.nothing("inside_calibrated_domain");
    return cells.line();
}

std::string RowWriter::line(const SweepRow& row) const {
    Cells cells(format_, false);
    const bool invalid = row.status == SweepStatus::invalid;
    inputs(cells, *row.model, *row.cluster, invalid ? setting_values(row.said) : setting_values(row.recipe));
    cells.text("status", sweep_status_names[static_cast<std::size_t>(row.status)]);
    cells.text("reason", row.reason);
    cells.text("beyond_shipped_code", row.beyond_shipped_code);
    const std::array bytes{row.device_usable, row.device_peak, row.host_usable_per_node, row.host_peak_per_node};
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (invalid) {
            cells.nothing(memory_columns[i]);
        } else {
            cells.number(memory_columns[i], bytes[i].value);
        }
    }
    if (row.speed) {
        times(cells, *row.speed);
    } else {
        nothing(cells, time_columns);
        cells.nothing("inside_calibrated_domain");
    }
    return cells.line();
}

}  // namespace headroom
