// SPDX-License-Identifier: Apache-2.0
#include "calibrate/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "calibrate/fit_parts.hpp"
#include "models/error.hpp"
#include "simulator/rates.hpp"

namespace headroom {

double rate_of(const std::vector<Json>& records) {
    std::vector<double> rates;
    for (const Json& record : records) rates.push_back(record.at("rate_per_second"));
    return quantile(rates, 0.5);
}

double seconds_of(const std::vector<Json>& records) {
    std::vector<double> seconds;
    for (const Json& record : records) seconds.push_back(record.at("seconds").at("median"));
    return quantile(seconds, 0.5);
}

Constant measured(const std::vector<double>& values, double spread, std::string reference) {
    Constant constant;
    constant.value = quantile(values, 0.5);
    constant.low = std::min(quantile(values, 0), constant.value * (1 - spread));
    constant.high = std::max(quantile(values, 1), constant.value * (1 + spread));
    constant.source = Source::measured;
    constant.reference = std::move(reference);
    return constant;
}

Attention attention_of(const Json& settings) {
    return {settings.at("query_tokens"),
            settings.at("key_tokens"),
            settings.at("heads"),
            settings.at("kv_heads"),
            settings.at("head_dim"),
            1,
            settings.at("mask") == "causal",
            settings.at("direction") == "backward"};
}

namespace {

Records finished(const std::vector<ProbeFile>& files, std::vector<std::string>& left_out) {
    Records records;
    for (const ProbeFile& file : files) {
        for (const Json& record : file.records) {
            const std::string name = record["name"];
            if (record["status"] == "ok") {
                records[name].push_back(record);
            } else {
                left_out.push_back(fmt::format("{}: {} ({})", name, record["status"].get<std::string>(),
                                               record.value("reason", std::string("no reason given"))));
            }
        }
    }
    return records;
}

void fit_attention_curves(const Records& records, const std::string& label, FitResult& result) {
    std::map<std::pair<bool, bool>, std::vector<AttentionPoint>> points;  // backward, causal
    std::map<int, std::vector<AttentionPoint>> other_widths;
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "attention") continue;
        const AttentionPoint point{name, attention_of(same.front()["settings"]), rate_of(same), seconds_of(same)};
        if (point.shape.head_dim == 128) {
            points[{point.shape.backward, point.shape.causal}].push_back(point);
        } else {
            other_widths[point.shape.head_dim].push_back(point);
        }
    }
    for (const bool backward : {false, true}) {
        sustain(records, backward, points[{backward, true}], points[{backward, false}], result);
    }
    std::erase_if(points, [](const auto& one) { return one.second.empty(); });
    AttentionKernelConstants kernel;
    for (const auto& [key, of_key] : points) {
        const auto [backward, causal] = key;
        CurveFit fit = fit_attention(of_key, result.streaming_multiprocessors);
        fit.curve.asymptote.reference = fmt::format("{}, {} probes", label, fit.residuals.points);
        kernel.curves[backward ? 1 : 0][causal ? 1 : 0] = fit.curve;
        (backward ? result.backward : result.forward).emplace_back(causal, std::move(fit));
    }
    for (const auto& [width, of_width] : other_widths) {
        std::vector<double> ratios;
        for (const AttentionPoint& point : of_width) {
            Attention narrow = point.shape;
            narrow.head_dim = 128;
            if (!kernel.curves[narrow.backward ? 1 : 0][narrow.causal ? 1 : 0].known()) continue;
            ratios.push_back(point.rate / attention_rate(kernel, narrow, result.streaming_multiprocessors));
        }
        if (ratios.empty()) continue;
        if (width == 64) result.head_dim_64 = quantile(ratios, 0.5);
        if (width == 256) result.head_dim_256 = quantile(ratios, 0.5);
    }
}

/// Products over fewer are probed for what writing the result takes.
constexpr std::int64_t short_depth = 2048;

/// Seconds of a product are those of its depth and, apart, of its result: two depths tell them apart. A product that
/// adds reads the result as well.
void fit_epilogue(const Records& records, const std::string& label, FitResult& result) {
    std::vector<double> shares;
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "gemm") continue;
        const Json& settings = same.front()["settings"];
        const std::int64_t m = settings.at("m"), n = settings.at("n"), k = settings.at("k");
        if (k >= short_depth || settings.value("adds", false)) continue;
        const auto like = [&](std::int64_t depth, bool adds) {
            return std::find_if(records.begin(), records.end(), [&](const auto& one) {
                if (one.second.front()["kind"] != "gemm") return false;
                const Json& other = one.second.front()["settings"];
                return other.at("m") == m && other.at("n") == n &&
                       (depth == 0 ? other.at("k") > k : other.at("k") == depth) && other.value("adds", false) == adds;
            });
        };
        const double result_seconds = 2.0 * static_cast<double>(m * n) / result.copy_rate.value;
        const auto deeper = like(0, false), adds = like(k, true);
        if (deeper != records.end()) {
            const double depth = deeper->second.front()["settings"].at("k").get<double>() / static_cast<double>(k);
            const double apart = (seconds_of(same) * depth - seconds_of(deeper->second)) / (depth - 1);
            shares.push_back(apart / result_seconds);
        }
        if (adds != records.end()) {
            shares.push_back((seconds_of(adds->second) - seconds_of(same)) / result_seconds);
        }
    }
    if (!shares.empty() && quantile(shares, 0) > 0) {
        result.epilogue = measured(shares, 0.1, label + ", products of two depths, and one that adds");
    }
}

void fit_gemms(const Records& records, const std::string& label, FitResult& result) {
    struct Cell {
        std::vector<double> rates;
        std::int64_t k = 0;
    };
    std::map<std::pair<std::int64_t, std::int64_t>, Cell> cells;  // n, m: the narrow side first
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "gemm") continue;
        const Json& settings = same.front()["settings"];
        const std::int64_t a = settings.at("m"), b = settings.at("n"), k = settings.at("k");
        if (k < short_depth) continue;  // fit_epilogue
        // Of very few tiles the library makes splits that say nothing about larger shapes.
        const std::int64_t tiles = divide_round_up(std::max(a, b), 128) * divide_round_up(std::min(a, b), 256);
        if (tiles < result.streaming_multiprocessors / 8 + 1) {
            result.left_out.push_back(fmt::format("{}: only {} tiles", name, tiles));
            continue;
        }
        Cell& cell = cells[{std::min(a, b), std::max(a, b)}];
        cell.rates.push_back(rate_of(same));
        cell.k = cell.k == 0 ? k : std::min(cell.k, k);
    }
    const double sustained = sustained_share_of_products(records, result);
    for (auto& [key, cell] : cells) {
        for (double& rate : cell.rates) rate *= sustained;
        const std::string reference = fmt::format("{}, {} sustained", label, cell.rates.size());
        result.gemm.push_back(
            {{key.second, key.first, cell.k, measured(cell.rates, 0.04, reference)}, cell.rates.size()});
    }
}

/// Rates of every probe whose name passes.
std::vector<double> rates_where(const Records& records, const std::function<bool(const std::string&)>& passes) {
    std::vector<double> rates;
    for (const auto& [name, same] : records) {
        if (passes(name)) rates.push_back(rate_of(same));
    }
    return rates;
}

void fit_memory(const Records& records, const std::string& label, FitResult& result) {
    const auto kernel = [&](std::vector<std::string> names) {
        return rates_where(records, [&, names = std::move(names)](const std::string& name) {
            return std::any_of(names.begin(), names.end(), [&](const std::string& one) {
                return name.starts_with("kernel/" + one + "/") && name.find("/4Kx4096") == std::string::npos &&
                       name.find("/8Kx4096") == std::string::npos;
            });
        });
    };
    const std::vector<double> copies = kernel({"copy"});
    if (copies.empty()) return;
    result.copy_rate = measured(copies, 0.02, label);
    const auto share = [&](MemoryKernel of, const std::vector<std::string>& names) {
        std::vector<double> shares = kernel(names);
        if (shares.empty()) return;
        for (double& value : shares) value /= result.copy_rate.value;
        result.shares.emplace_back(of, measured(shares, 0.03, label + ", Headroom's own kernels"));
    };
    share(MemoryKernel::eager, {"eager_add", "cast_up", "cast_down", "complex_rotary"});
    share(MemoryKernel::norm_forward, {"norm_forward"});
    share(MemoryKernel::norm_backward, {"norm_backward"});
    share(MemoryKernel::mixed_add, {"mixed_add", "mixed_add_wide"});
    share(MemoryKernel::transpose, {"transpose"});
    // What a short kernel takes beyond its bytes at the rate of a long one.
    std::vector<double> starts;
    for (const auto& [small, large] : {std::pair("kernel/copy/4Kx4096", "kernel/copy/128Kx4096"),
                                       std::pair("kernel/eager_add/8Kx4096", "kernel/eager_add/128Kx4096")}) {
        if (!records.contains(small) || !records.contains(large)) continue;
        const double bytes = records.at(small).front().at("amount").at("value");
        starts.push_back(seconds_of(records.at(small)) - bytes / rate_of(records.at(large)));
    }
    if (!starts.empty() && quantile(starts, 0) > 0) result.kernel_start = measured(starts, 0.3, label);
}

/// Of the rate one GPU has alone, what each has when all of them copy.
std::vector<double> shares_of_all(const Records& records) {
    std::vector<double> shares;
    for (const char* direction : {"to_host", "to_device"}) {
        const std::string alone = fmt::format("host/copy/{}/pinned/128MiB/1", direction);
        int most = 1;
        double share = 0;
        for (const auto& [name, same] : records) {
            if (same.front()["kind"] != "host_copy" || !records.contains(alone)) continue;
            const Json& settings = same.front()["settings"];
            const int gpus = settings.value("gpus", 1);
            if (gpus <= most || settings.at("direction") != direction || settings.at("memory") != "pinned") continue;
            most = gpus;
            share = rate_of(same) / gpus / rate_of(records.at(alone));
        }
        if (share > 0) shares.push_back(share);
    }
    return shares;
}

void fit_host(const Records& records, const std::string& label, FitResult& result) {
    const auto add = [&](const char* key, const std::vector<double>& values, double spread, const std::string& what) {
        if (!values.empty()) result.host.push_back({key, measured(values, spread, label + ", " + what)});
    };
    const auto large = [&](const std::string& part) {
        return rates_where(records, [&](const std::string& name) {
            return name.find(part) != std::string::npos && name.find("/16MiB/") == std::string::npos &&
                   name.ends_with("/1");
        });
    };
    add("to_host", large("host/copy/to_host/pinned/"), 0.03, "one GPU");
    add("to_device", large("host/copy/to_device/pinned/"), 0.03, "one GPU");
    add("pageable_fresh", large("host/copy/to_host/fresh/"), 0.15, "one thread");
    add("pageable_to_host", large("host/copy/to_host/existing/"), 0.15, "one thread");
    add("pageable_to_device", large("host/copy/to_device/written/"), 0.15, "one thread");
    add("all_gpus", shares_of_all(records), 0.03, "pinned, against one GPU alone");
    add("zero_fill", large("host/zero_fill/"), 0.15, "memset by one thread");
    for (const char* gap : {"launch", "after_wait"}) {
        const auto found = records.find(fmt::format("host/gap/{}", gap));
        if (found == records.end()) continue;
        std::vector<double> seconds;
        for (const Json& record : found->second) seconds.push_back(record.at("seconds").at("median"));
        add(gap, seconds, 0.3, "C++: Python adds to it");
    }
}

std::string software_of(const Json& provenance) {
    std::string text = fmt::format("driver {}", provenance.at("driver").value("version", std::string("unknown")));
    for (const auto& [name, version] : provenance.at("libraries").items()) {
        text += fmt::format(", {} {}", name, version.get<std::string>());
    }
    return text;
}

}  // namespace

FitResult fit_probes(const std::vector<ProbeFile>& files) {
    FitResult result;
    const Json* described = nullptr;
    for (const ProbeFile& file : files) {
        for (const char* key : {"name", "memory_bytes", "streaming_multiprocessors"}) {
            // Several machines of one kind may be fitted together; their ranges then hold their differences.
            const Json &one = file.provenance.at("gpus").at(0), &other = files.front().provenance.at("gpus").at(0);
            if (one.at(key) == other.at(key)) continue;
            throw Error(fmt::format("the probe files come from different GPUs: {} is {} and {}", key,
                                    other.at(key).dump(), one.at(key).dump()),
                        "", "fit each kind of machine on its own");
        }
        // The one that says most, of these the latest, in whatever order the files are named.
        const auto worth = [](const Json& provenance) {
            return std::pair(provenance.at("libraries").size(), provenance.value("started", std::string()));
        };
        if (described == nullptr || worth(file.provenance) > worth(*described)) described = &file.provenance;
    }
    for (const ProbeFile& file : files) result.files.push_back(file.name);
    std::sort(result.files.begin(), result.files.end());
    const Records records = finished(files, result.left_out);
    if (records.empty() || described == nullptr) throw Error("no finished probe to fit", "", "run the probes again");
    const Json& gpu = described->at("gpus").at(0);
    result.machine = gpu.at("name");
    result.streaming_multiprocessors = gpu.at("streaming_multiprocessors");
    result.software = software_of(*described);
    const std::string label = fmt::format("{} probes of {}", result.machine,
                                          described->value("started", std::string("an unknown day")).substr(0, 10));
    fit_attention_curves(records, label, result);
    fit_gemms(records, label, result);
    fit_memory(records, label, result);
    fit_epilogue(records, label, result);
    fit_host(records, label, result);
    fit_links(records, label, result);
    fit_overlaps(records, label, result);
    fit_device_memory(files, records, result);
    for (const ProbeFile& file : files) {
        const Json& job = file.provenance.contains("job") ? file.provenance.at("job") : Json::object();
        const int gpus = job.value("gpus_per_node", static_cast<int>(file.provenance.at("gpus").size()));
        result.gpus = std::max(result.gpus, gpus);
        result.host_bytes =
            std::max(result.host_bytes, file.provenance.at("host").value("memory_bytes", std::int64_t{0}));
    }
    result.gpu_bytes = gpu.at("memory_bytes");
    return result;
}

}  // namespace headroom
