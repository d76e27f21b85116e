// SPDX-License-Identifier: Apache-2.0
// One configuration as a row. Names are those of the other documents: snake_case with units; empty, or null, where
// something does not apply.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "models/error.hpp"
#include "models/model_flops.hpp"
#include "planner/outside.hpp"
#include "planner/search.hpp"
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

void times(Cells& cells, const Transformer& model, const Cluster& cluster, const Recipe& recipe, const StepTime& step,
           AttentionCount count) {
    const auto speed = [&](Seconds seconds) { return tokens_per_second_per_gpu(recipe, seconds); };
    const double flops = model_flops(model, recipe.context, recipe.batch, count).total() / recipe.context_parallel();
    const std::array values{step.seconds.value,
                            step.low.value,
                            step.high.value,
                            speed(step.seconds),
                            speed(step.high),
                            speed(step.low),
                            flops / (step.seconds.value * cluster.peak_bf16.value)};
    for (std::size_t i = 0; i < values.size(); ++i) cells.real(time_columns[i], values[i]);
    cells.truth("inside_calibrated_domain", step.domain == 0);
}

template <class Columns>
void nothing(Cells& cells, const Columns& columns) {
    for (const char* column : columns) cells.nothing(column);
}

std::string shortage(const Verdict& verdict, Bytes usable, Bytes host_usable, bool sticks) {
    if (verdict.device_peak > usable) {
        return fmt::format("{:.2f} GiB short on the GPU", in_gib(verdict.device_peak - usable));
    }
    if (verdict.host_peak_per_node > host_usable) {
        return fmt::format("{:.2f} GiB short on the host", in_gib(verdict.host_peak_per_node - host_usable));
    }
    return sticks ? "what sticks in the allocator does not fit" : "";
}

}  // namespace

std::string RowWriter::heading() const {
    if (format_ == RowFormat::json_lines) return {};
    Cells cells(format_, true);
    inputs(cells, grid_.models.front(), grid_.clusters.front(), setting_values(Settings{}));
    cells.nothing("status");
    cells.nothing("reason");
    nothing(cells, memory_columns);
    nothing(cells, time_columns);
    cells.nothing("inside_calibrated_domain");
    return cells.line();
}

std::string RowWriter::row(std::int64_t index, Evaluator& evaluator, SweepCounts& counts) const {
    const Grid::Point point = grid_.point(index);
    const Transformer& model = *point.model;
    const Cluster& cluster = *point.cluster;
    const TimeBasis& basis = bases_[static_cast<std::size_t>(point.cluster - grid_.clusters.data())];
    Cells cells(format_, false);
    Recipe recipe;
    try {
        const auto method = point.said.method.value_or(Method::upipe);
        Settings said = point.said;
        said.method = method;
        recipe = resolve(said, grid_.published[static_cast<std::size_t>(method)], model, cluster);
    } catch (const Error& error) {
        ++counts.invalid;
        inputs(cells, model, cluster, setting_values(point.said));
        cells.text("status", "invalid");
        cells.text("reason", error.what());
        nothing(cells, memory_columns);
        nothing(cells, time_columns);
        cells.nothing("inside_calibrated_domain");
        return cells.line();
    }
    const Bytes usable = cluster.device_memory - sum(outside_terms(cluster, recipe));
    const Bytes host_usable = usable_host_memory(cluster);
    const bool timed =
        basis.calibration && basis.calibration->attention[static_cast<std::size_t>(recipe.attention_kernel)].known();
    Evaluation evaluation;
    if (timed) {
        evaluation = evaluator.evaluate(model, cluster, recipe, *basis.calibration);
    } else {
        evaluation.memory = evaluator.verdict(model, cluster, recipe);
    }
    const Verdict& memory = evaluation.memory;
    // What sticks in the allocator is a small part of the device: only a tight fit depends on it.
    constexpr double tight = 0.85;
    const bool close = static_cast<double>(memory.device_peak.value) > tight * static_cast<double>(usable.value);
    bool sticks = false;
    if (memory.fits() && close) {
        static const Calibration no_constants;
        sticks = !holds(evaluator, recipe, {model, cluster, no_constants, {0, 0}});
    }
    const bool fit = memory.fits() && !sticks;
    ++(fit ? counts.fits : counts.does_not_fit);

    inputs(cells, model, cluster, setting_values(recipe));
    cells.text("status", fit ? "fits" : "does_not_fit");
    cells.text("reason", fit ? "" : shortage(memory, usable, host_usable, sticks));
    const std::array bytes{usable, memory.device_peak, host_usable, memory.host_peak_per_node};
    for (std::size_t i = 0; i < bytes.size(); ++i) cells.number(memory_columns[i], bytes[i].value);
    if (timed) {
        times(cells, model, cluster, recipe, evaluation.step, basis.count);
    } else {
        nothing(cells, time_columns);
        cells.nothing("inside_calibrated_domain");
    }
    return cells.line();
}

}  // namespace headroom
