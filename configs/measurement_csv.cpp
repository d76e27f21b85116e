// SPDX-License-Identifier: Apache-2.0
// Users' own results as CSV: any order of columns, many names for each, one row per run with as many figures as it has.
// What cannot be read is reported with its line, and the rest goes on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>

#include "configs/inline.hpp"
#include "configs/load.hpp"
#include "configs/measurement.hpp"
#include "configs/reader.hpp"
#include "configs/recipe_text.hpp"
#include "configs/sizes.hpp"

namespace headroom {
namespace {

struct Alias {
    std::string_view written, meant;
};
// Besides the names themselves; recipe keys may have an underscore for their dot.
constexpr Alias aliases[]{
    {"name", "id"},
    {"run", "id"},
    {"comment", "note"},
    {"gpu", "cluster"},
    {"machine", "cluster"},
    {"num_gpus", "gpus"},
    {"n_gpus", "gpus"},
    {"world_size", "gpus"},
    {"num_nodes", "nodes"},
    {"result", "status"},
    {"context_tokens", "context"},
    {"context_length", "context"},
    {"seq_len", "context"},
    {"sequence_length", "context"},
    {"tokens", "context"},
    {"batch_size", "batch"},
    {"micro_batch", "batch"},
    {"ulysses_degree", "ulysses"},
    {"sp", "ulysses"},
    {"ring_degree", "ring"},
    {"cp", "ring"},
    {"kernel", "attention_kernel"},
    {"sharding", "sharding.strategy"},
    {"tokens_per_s_per_gpu", "tokens_per_second_per_gpu"},
    {"tgs", "tokens_per_second_per_gpu"},
    {"tokens_per_s", "tokens_per_second"},
    {"step_s", "step_seconds"},
    {"step_time_s", "step_seconds"},
    {"iteration_time_s", "step_seconds"},
    {"mfu", "mfu_percent"},
};
// A memory name without its unit, as in the metrics, after `max_memory_` and the like are rewritten.
constexpr Alias memory_aliases[]{
    {"peak_memory", "peak"},         {"memory", "peak"},
    {"allocated", "peak_allocated"}, {"max_memory_allocated", "peak_allocated"},
    {"reserved", "peak_reserved"},   {"max_memory_reserved", "peak_reserved"},
    {"nvidia_smi", "device_used"},   {"host_memory", "host_memory_per_node"},
};

std::string plain_name(std::string_view text) {
    std::string name;
    for (const char c : text) {
        if (c == ' ' || c == '-') {
            if (!name.empty() && name.back() != '_') name += '_';
        } else {
            name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
        }
    }
    while (!name.empty() && name.back() == '_') name.pop_back();
    return name;
}

struct Column {
    enum class Kind { ignored, text, recipe, metric } kind = Kind::ignored;
    std::string name;
    Metric metric;
};

std::optional<Metric> metric_named(const std::string& name) {
    try {
        return parse_metric(name, "");
    } catch (const Error&) {
        return std::nullopt;
    }
}

Column column_named(const std::string& heading) {
    std::string name = plain_name(heading);
    for (const Alias& alias : aliases) {
        if (name == alias.written) name = alias.meant;
    }
    for (const char* plain : {"id", "note", "model", "cluster", "nodes", "gpus", "status", "source"}) {
        if (name == plain) return {Column::Kind::text, name, {}};
    }
    for (const std::string& key : recipe_keys()) {
        std::string flat = key;
        std::replace(flat.begin(), flat.end(), '.', '_');
        if (name == key || name == flat) return {Column::Kind::recipe, key, {}};
    }
    if (const auto metric = metric_named(name)) return {Column::Kind::metric, name, *metric};
    for (const Alias& alias : memory_aliases) {
        if (!name.starts_with(alias.written) || name.size() <= alias.written.size()) continue;
        const std::string full = std::string(alias.meant) + name.substr(alias.written.size());
        if (const auto metric = metric_named(full)) return {Column::Kind::metric, full, *metric};
    }
    return {Column::Kind::ignored, name, {}};
}

bool is_bare_memory(const std::string& name) {
    const auto same = [&](const Alias& alias) { return name == alias.written || name == alias.meant; };
    return std::any_of(std::begin(memory_aliases), std::end(memory_aliases), same);
}

bool is_blank(const std::string& cell) {
    const std::string name = plain_name(cell);
    return name.empty() || name == "n/a" || name == "na" || name == "nan";
}

std::optional<RunStatus> status_named(const std::string& cell) {
    const std::string name = plain_name(cell);
    for (const char* good : {"ok", "success", "passed", "fits", "ran", "done"}) {
        if (name == good) return RunStatus::ok;
    }
    for (const char* bad : {"oom", "out_of_memory", "does_not_fit", "cuda_out_of_memory"}) {
        if (name == bad) return RunStatus::oom;
    }
    if (name == "not_run" || name == "skipped") return RunStatus::not_run;
    return std::nullopt;
}

int count(const std::string& cell, const std::string& name, const std::string& where) {
    const std::int64_t number = parse_integer(cell, name, where);
    if (number < 1 || number > 1'000'000) throw Error(fmt::format("{} must be 1 to 1000000", name), where);
    return static_cast<int>(number);
}

/// One row: the run, and one measurement for each figure in it.
class Row {
 public:
    Row(const std::vector<Column>& columns, const CsvRecord& record, const std::string& file)
        : columns_(columns), record_(record), where_(fmt::format("{}:{}", file, record.line)) {}

    std::vector<Measurement> read(const std::string& model, const std::string& cluster) {
        Measurement run;
        run.place = where_;
        run.id = fmt::format("line {}", record_.line);
        std::string model_name = model, cluster_name = cluster;
        int nodes = 0, gpus = 0;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            const Column& column = columns_[i];
            const std::string& cell = record_.fields[i];
            if (column.kind == Column::Kind::ignored || is_blank(cell)) continue;
            if (column.kind == Column::Kind::recipe) {
                set_key(run.said, column.name, cell);
            } else if (column.kind == Column::Kind::metric) {
                read_figure(column, cell, run.status);
            } else if (column.name == "id") {
                run.id = cell;
            } else if (column.name == "note") {
                run.note = cell;
            } else if (column.name == "source") {
                run.source = cell;
            } else if (column.name == "model") {
                model_name = cell;
            } else if (column.name == "cluster") {
                cluster_name = cell;
            } else if (column.name == "nodes") {
                nodes = count(cell, "nodes", where_);
            } else if (column.name == "gpus") {
                gpus = count(cell, "gpus", where_);
            } else if (const auto status = status_named(cell)) {
                run.status = *status;
            } else {
                throw Error(fmt::format("status '{}' is not known", cell), where_, "write ok, oom or not_run");
            }
        }
        run.model = load_model(model_name);
        run.model_name = run.model.name;
        run.cluster = load_cluster(cluster_name);
        run.cluster_name = run.cluster.name;
        set_job_size(run.cluster, nodes, gpus, where_);
        if (!run.said.method) throw Error("the row has no method", where_, "add a column method");
        if (!run.said.context)
            throw Error("the row has no context", where_, "add a column context, tokens over all GPUs");
        run.published = published_recipe(*run.said.method);
        if (figures_.empty()) return {run};
        std::vector<Measurement> list;
        for (auto& [metric, value] : figures_) {
            run.metric = metric;
            run.value = value;
            list.push_back(run);
        }
        return list;
    }

 private:
    void set_key(Settings& settings, const std::string& key, const std::string& cell) {
        Value value;
        value.kind = Value::Kind::scalar;
        value.key = value.name = key;
        value.place = where_;
        // True and False as spreadsheets write them; words as people do.
        value.text = cell == "TRUE" || cell == "True" ? "true" : cell == "FALSE" || cell == "False" ? "false" : cell;
        if (key == "method") value.text = plain_name(cell);
        set_recipe_key(settings, key, value);
    }

    void read_figure(const Column& column, const std::string& cell, RunStatus& status) {
        if (const auto word = status_named(cell)) {
            status = *word;
            figures_.emplace_back(column.metric, std::nullopt);
            return;
        }
        const double value = parse_number(cell, column.name, where_);
        require_measurable(value, column.name, where_);
        figures_.emplace_back(column.metric, value);
    }

    const std::vector<Column>& columns_;
    const CsvRecord& record_;
    std::string where_;
    std::vector<std::pair<Metric, std::optional<double>>> figures_;
};

}  // namespace

std::vector<CsvRecord> parse_csv(const std::string& text, const std::string& file) {
    std::vector<CsvRecord> records;
    CsvRecord record{1, {}};
    std::string field;
    int line = 1;
    bool quoted = false, was_quoted = false;
    std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
    const auto end_field = [&] {
        record.fields.push_back(std::move(field));
        field.clear();
        was_quoted = false;
    };
    const auto end_record = [&] {
        end_field();
        if (record.fields.size() > 1 || !record.fields.front().empty()) records.push_back(std::move(record));
        record = {line, {}};
    };
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (c == '\n') ++line;
        if (quoted) {
            if (c != '"') {
                field += c;
            } else if (at + 1 < text.size() && text[at + 1] == '"') {
                field += text[++at];
            } else {
                quoted = false;
            }
        } else if (c == '"' && field.empty() && !was_quoted) {
            quoted = was_quoted = true;
        } else if (c == ',') {
            end_field();
        } else if (c == '\n') {
            end_record();
        } else if (c != '\r') {
            field += c;
        }
    }
    if (quoted) {
        throw Error("a quoted field is not closed", fmt::format("{}:{}", file, record.line), "add the missing quote");
    }
    if (!field.empty() || !record.fields.empty()) end_record();
    return records;
}

MeasurementFile read_measurement_csv(const std::string& csv, const std::string& file, const std::string& model,
                                     const std::string& cluster) {
    const std::vector<CsvRecord> records = parse_csv(csv, file);
    if (records.empty()) throw Error("the file has no heading", file, "begin with e.g. model,method,context,peak_gib");
    MeasurementFile result;
    std::vector<Column> columns;
    std::vector<std::string> ignored;
    for (const std::string& heading : records.front().fields) {
        Column column = column_named(heading);
        for (const Column& other : columns) {
            if (column.kind != Column::Kind::ignored && other.name == column.name) {
                throw Error(fmt::format("two columns mean {}", column.name), fmt::format("{}:1", file), "keep one");
            }
        }
        if (column.kind == Column::Kind::ignored) {
            ignored.push_back(is_bare_memory(column.name) ? fmt::format("{} (no unit: write {}_gib or {}_gb)", heading,
                                                                        column.name, column.name)
                                                          : heading);
        }
        columns.push_back(std::move(column));
    }
    if (!ignored.empty()) {
        result.warnings.push_back(fmt::format("{}:1: columns ignored: {}", file, fmt::join(ignored, ", ")));
    }
    const std::string hint = columns.size() == 1 && records.front().fields.front().find(';') != std::string::npos
                                 ? "separate columns by commas, not semicolons"
                                 : "name a column method, and one context";
    const auto has = [&](const char* name) {
        return std::any_of(columns.begin(), columns.end(), [&](const Column& column) { return column.name == name; });
    };
    if (!has("method") || !has("context")) throw Error("no column says method or context", file + ":1", hint);
    for (std::size_t i = 1; i < records.size(); ++i) {
        try {
            if (records[i].fields.size() != columns.size()) {
                throw Error(fmt::format("{} fields, the heading has {}", records[i].fields.size(), columns.size()), "");
            }
            for (Measurement& run : Row(columns, records[i], file).read(model, cluster)) {
                run.set = std::filesystem::path(file).stem().string();
                if (run.source.empty()) run.source = file;
                result.measurements.push_back(std::move(run));
            }
        } catch (const Error& error) {
            std::string line = fmt::format("{}:{}: row left out: {}", file, records[i].line, error.what());
            if (!error.hint().empty()) line += fmt::format(" ({})", error.hint());
            result.warnings.push_back(std::move(line));
        }
    }
    return result;
}

}  // namespace headroom
