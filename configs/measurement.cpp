// SPDX-License-Identifier: Apache-2.0
#include "configs/measurement.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "configs/builtin_data.hpp"
#include "configs/inline.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"

namespace headroom {
namespace {

struct Named {
    std::string_view name;
    Figure figure;
};
// Of memory; a unit follows.
constexpr Named sizes[]{{"peak", Figure::peak},
                        {"peak_allocated", Figure::peak_allocated},
                        {"peak_reserved", Figure::peak_reserved},
                        {"device_used", Figure::device_used},
                        {"states", Figure::states},
                        {"attention", Figure::attention},
                        {"other", Figure::other},
                        {"host_memory_per_node", Figure::host_memory},
                        {"host_pageable_per_node", Figure::host_pageable}};
constexpr Named others[]{{"verdict", Figure::verdict},
                         {"max_context", Figure::max_context},
                         {"tokens_per_second", Figure::tokens_per_second},
                         {"tokens_per_second_per_gpu", Figure::tokens_per_second_per_gpu},
                         {"step_seconds", Figure::step_seconds},
                         {"mfu_percent", Figure::reported},
                         {"tflops_per_gpu_model_causal", Figure::model_tflops},
                         {"tflops_per_gpu_noncausal_with_recompute", Figure::reported},
                         {"tflops_per_gpu_reported", Figure::reported},
                         {"reported", Figure::reported}};
struct Unit {
    std::string_view name;
    double bytes;
};
constexpr Unit units[]{{"bytes", 1},
                       {"mib", 1024.0 * 1024},
                       {"gib", 1024.0 * 1024 * 1024},
                       {"tib", 1024.0 * 1024 * 1024 * 1024},
                       {"mb", 1e6},
                       {"gb", 1e9},
                       {"tb", 1e12}};

constexpr std::array<std::string_view, 3> status_names{"ok", "oom", "not_run"};

std::string optional_text(const Value& entry, std::string_view key) {
    const Value* value = find(entry, key);
    return value ? text(*value) : "";
}

std::string required_text(const Value& entry, std::string_view key) {
    const Value* value = find(entry, key);
    if (!value) throw Error(fmt::format("the entry has no {}", key), entry.place);
    return text(*value);
}

int count(const Value& entry, std::string_view key) {
    const Value* value = find(entry, key);
    if (!value) return 0;
    const std::int64_t number = integer(*value);
    if (number < 1 || number > 1'000'000) throw Error(fmt::format("{} must be 1 to 1000000", key), value->where());
    return static_cast<int>(number);
}

/// The run itself: model, machine and recipe, resolved as far as names go.
void read_run(Measurement& run, const Value& entry) {
    const Value* model = find(entry, "model");
    const Value* cluster = find(entry, "cluster");
    const Value* recipe = find(entry, "recipe");
    if (!model || !cluster || !recipe) {
        throw Error("an entry needs model, cluster and recipe, or a reason under not_expressed", entry.place);
    }
    try {
        run.model = model->is_map() ? read_model(rooted(*model), run.id) : load_model(text(*model));
    } catch (const Error& error) {
        if (model->is_map()) throw;
        throw Error(error.what(), model->where(), error.hint());
    }
    run.model_name = run.model.name;
    if (cluster->is_map()) {
        const Value* base = find(*cluster, "base");
        run.cluster = read_cluster(rooted(*cluster), base ? text(*base) : run.id);
    } else {
        try {
            run.cluster = load_cluster(text(*cluster));
        } catch (const Error& error) {
            throw Error(error.what(), cluster->where(), error.hint());
        }
    }
    run.cluster_name = run.cluster.name;
    set_job_size(run.cluster, count(entry, "nodes"), count(entry, "gpus"), entry.place);
    run.said = read_recipe(rooted(*recipe));
    if (!run.said.method) throw Error("the recipe of a measurement names its method", recipe->place);
    if (!run.said.context) throw Error("the recipe of a measurement has a context", recipe->place);
    run.published = published_recipe(*run.said.method);
}

const std::vector<std::string> entry_keys{"id",     "location", "confidence",  "model",        "cluster", "nodes",
                                          "gpus",   "recipe",   "metric",      "value",        "status",  "note",
                                          "source", "url",      "uncertainty", "not_expressed"};

Measurement read_entry(const Value& entry) {
    if (!entry.is_map()) throw Error(fmt::format("an entry must be a map, not {}", shown(entry)), entry.where());
    reject_unknown_keys(entry, entry_keys);
    Measurement run;
    run.place = entry.place;
    run.id = required_text(entry, "id");
    run.source = optional_text(entry, "source");
    run.url = optional_text(entry, "url");
    run.location = optional_text(entry, "location");
    run.confidence = optional_text(entry, "confidence");
    run.note = optional_text(entry, "note");
    if (const Value* status = find(entry, "status")) run.status = static_cast<RunStatus>(choice(*status, status_names));
    const std::string metric = optional_text(entry, "metric");
    run.metric =
        metric.empty() ? Metric{Figure::verdict, "verdict", 1} : parse_metric(metric, find(entry, "metric")->where());
    if (const Value* value = find(entry, "value")) {
        run.value = number(*value);
        require_measurable(*run.value, run.metric.name, value->where());
    }
    if (const Value* value = find(entry, "uncertainty")) run.uncertainty = number(*value);
    if (run.value && run.metric.figure == Figure::verdict) {
        throw Error("the value has no metric", entry.place, "add for example metric: peak_reserved_gib");
    }
    run.not_expressed = optional_text(entry, "not_expressed");
    if (run.not_expressed.empty()) {
        read_run(run, entry);
    } else {
        run.model_name = optional_text(entry, "model");
        run.cluster_name = optional_text(entry, "cluster");
    }
    return run;
}

}  // namespace

void require_measurable(double value, const std::string& name, const std::string& where) {
    if (value >= 0) return;
    throw Error(fmt::format("{} cannot be measured as {}", name, value), where,
                "leave it out where nothing was measured");
}

Metric parse_metric(const std::string& name, const std::string& where) {
    for (const Named& other : others) {
        if (other.name == name) return {other.figure, name, 1};
    }
    std::vector<std::string> known;
    for (const Named& other : others) known.emplace_back(other.name);
    for (const Named& size : sizes) {
        for (const Unit& unit : units) {
            std::string full = fmt::format("{}_{}", size.name, unit.name);
            if (full == name) return {size.figure, name, unit.bytes};
            known.push_back(std::move(full));
        }
        if (size.name == name) {
            throw Error(fmt::format("{} has no unit", name), where,
                        fmt::format("write {}_gib (2^30 bytes) or {}_gb (10^9)", name, name));
        }
    }
    const std::string near = did_you_mean(name, known);
    throw Error(fmt::format("unknown metric '{}'", name), where,
                near.empty() ? "the metrics are listed in configs/measurements/README.md"
                             : fmt::format("did you mean {}?", near));
}

void set_job_size(Cluster& cluster, int nodes, int gpus, const std::string& where) {
    const int node = cluster.gpus_per_node;
    if (nodes > 0) cluster.nodes = nodes;
    if (gpus == 0) return;
    if (nodes == 0) cluster.nodes = gpus < node ? 1 : gpus / node;
    if (gpus % cluster.nodes != 0 || gpus / cluster.nodes > node || (nodes == 0 && gpus > node && gpus % node != 0)) {
        throw Error(fmt::format("{} GPUs are not {} equal nodes of at most {}", gpus, cluster.nodes, node), where,
                    "correct nodes or gpus");
    }
    cluster.gpus_per_node = gpus / cluster.nodes;
}

std::vector<Measurement> read_measurements(const std::string& yaml, const std::string& file) {
    const Value root = parse_yaml(yaml, file);
    const Value* entries = root.is_map() ? find(root, "entries") : nullptr;
    if (!entries || !entries->is_list()) {
        throw Error("a measurement file is a map with a list of entries", root.place,
                    "begin with 'source: ...' and 'entries:'");
    }
    reject_unknown_keys(root, std::vector<std::string>{"source", "url", "entries"});
    std::vector<Measurement> list;
    for (const Value& item : entries->items) {
        Measurement run = read_entry(rooted(item));
        run.set = std::filesystem::path(file).stem().string();
        if (run.source.empty()) run.source = optional_text(root, "source");
        if (run.url.empty()) run.url = optional_text(root, "url");
        for (const Measurement& other : list) {
            if (other.id == run.id) {
                throw Error(fmt::format("the id {} stands twice", run.id), run.place,
                            fmt::format("the first is at {}", other.place));
            }
        }
        list.push_back(std::move(run));
    }
    return list;
}

std::vector<std::string> builtin_measurement_sets() { return builtin_names("measurements"); }

std::vector<Measurement> builtin_measurements(const std::string& set) {
    const auto text = builtin_text("measurements", set);
    if (!text) {
        const std::string near = did_you_mean(set, builtin_measurement_sets());
        throw Error(fmt::format("no built-in measurements are called '{}'", set), set,
                    near.empty() ? "leave it out for all of them" : fmt::format("did you mean {}?", near));
    }
    return read_measurements(std::string(*text), "measurements/" + set + ".yaml");
}

MeasurementFile load_measurements(const std::string& path, const std::string& model, const std::string& cluster) {
    std::string ending = std::filesystem::path(path).extension().string();
    for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (ending == ".csv") return read_measurement_csv(read_text_file(path), path, model, cluster);
    return {read_measurements(read_text_file(path), path), {}};
}

}  // namespace headroom
