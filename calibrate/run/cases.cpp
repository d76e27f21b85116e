// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/probe.hpp"
#include "configs/load.hpp"
#include "configs/sizes.hpp"
#include "models/error.hpp"
#include "models/training_step.hpp"

namespace headroom {
namespace {

/// Rethrows with the flag as the user typed it.
template <class Work>
auto at(const std::string& flag, Work work) {
    try {
        return work();
    } catch (const Error& error) {
        throw Error(error.what(), flag, error.hint(), error.exit_code());
    }
}

Settings common_frame() {
    Settings settings;
    settings.implementation = Implementation::lean;
    settings.attention_kernel = AttentionKernel::cudnn;
    settings.batch = 1;
    settings.precision_compute = NumberFormat::bf16;
    settings.precision_reduction = NumberFormat::fp32;
    settings.sharding_strategy = ShardingStrategy::fsdp;
    settings.offload_block_inputs = HostPlace::pinned;
    return settings;
}

Settings said_by(const RunOptions& options) {
    Settings settings;
    for (const std::string& assignment : options.sets) {
        at("--set " + assignment, [&] { set(settings, assignment); });
    }
    const auto flag = [&](const char* name, const std::string& key, const std::string& value) {
        if (!value.empty()) at(name, [&] { set(settings, key + "=" + value); });
    };
    flag("--ulysses", "ulysses", options.ulysses);
    flag("--ring", "ring", options.ring);
    return layer(settings, common_frame());
}

void require_runnable(const Settings& settings) {
    const auto refuse = [](bool wrong, const char* key, const char* why) {
        if (wrong) throw Error(fmt::format("{}: {}", key, why), "--set", fmt::format("leave {} out", key));
    };
    refuse(settings.implementation != Implementation::lean, "implementation", "only lean schedules are executed");
    refuse(settings.attention_kernel != AttentionKernel::cudnn, "attention_kernel", "only cuDNN's is built in");
    refuse(settings.batch != 1, "batch", "only one sequence at a time is executed");
    refuse(settings.precision_compute != NumberFormat::bf16, "precision.compute", "only bf16 is executed");
    refuse(settings.precision_reduction != NumberFormat::fp32, "precision.reduction", "only fp32 is executed");
}

Cluster cluster_of(const RunOptions& options) {
    Cluster cluster = at("--cluster " + options.cluster, [&] { return load_cluster(options.cluster); });
    const std::int64_t gpus = parse_integer(options.gpus, "the number of GPUs", "--gpus");
    if (gpus < 1 || gpus > cluster.gpus_per_node) {
        throw Error(fmt::format("{} GPUs are not in one node", options.gpus), "--gpus",
                    fmt::format("a node of {} has {}", cluster.name, cluster.gpus_per_node));
    }
    cluster.nodes = 1;
    cluster.gpus_per_node = static_cast<int>(gpus);
    return cluster;
}

Transformer model_of(const RunOptions& options) {
    Transformer model = at("--model " + options.model, [&] { return load_model(options.model); });
    if (options.layers.empty()) return model;
    const std::int64_t layers = parse_integer(options.layers, "the number of layers", "--layers");
    if (layers < 1 || layers > model.layers) {
        throw Error(fmt::format("{} layers are not in {}", options.layers, model.name), "--layers",
                    fmt::format("use 1 to {}", model.layers));
    }
    model.layers = layers;
    return model;
}

std::string name_of(const Recipe& recipe) {
    std::string name = fmt::format("{} {}", to_string(recipe.method), binary_tokens(recipe.context.value));
    if (recipe.method == Method::upipe) name += fmt::format(" U {}", recipe.heads_per_stage);
    if (recipe.method == Method::fpdt) {
        name +=
            fmt::format(" chunk {}{}", binary_tokens(recipe.chunk_tokens.value), recipe.offload.chunks ? " host" : "");
    }
    return name + fmt::format(", {}x{}", recipe.ulysses, recipe.ring);
}

/// Values of the list that concerns this method; one empty string where none was said.
std::vector<std::string> choices(bool concerned, const std::vector<std::string>& said) {
    if (!concerned || said.empty()) return {""};
    return said;
}

/// A list for a method that is not among the chosen ones would change nothing.
void require_use(Method method, const std::vector<std::string>& list, const char* flag, const RunOptions& options) {
    const std::string name(to_string(method));
    const std::vector<std::string>& chosen = options.methods;
    if (list.empty() || std::find(chosen.begin(), chosen.end(), name) != chosen.end()) return;
    throw Error(fmt::format("only {} has {}, and it is not among the methods", name,
                            method == Method::upipe ? "stages" : "chunks"),
                flag, fmt::format("leave it out, or add {} to --method", name));
}

std::string why_not_run(const Workload& work) {
    const std::string part = not_described(work);
    if (part.empty()) return "";
    return part + " cannot be run: no kernels are written for it; ring, ulysses, usp, fpdt and upipe have them, as " +
           "headroom calibrate run --help says";
}

}  // namespace

std::vector<RunCase> plan_cases(const RunOptions& options) {
    const Cluster cluster = cluster_of(options);
    const Transformer model = model_of(options);
    const Settings said = said_by(options);
    require_runnable(said);
    std::vector<RunCase> cases;
    for (const std::string& method : options.methods) {
        Settings of_method = said;
        at("--method", [&] { set(of_method, "method=" + method); });
        const Method chosen = *of_method.method;
        for (const std::string& context : options.contexts) {
            for (const std::string& heads : choices(chosen == Method::upipe, options.heads_per_stage)) {
                for (const std::string& chunk : choices(chosen == Method::fpdt, options.chunk_tokens)) {
                    Settings settings = of_method;
                    settings.context = parse_tokens(context, "--context");
                    if (!heads.empty()) at("--heads-per-stage", [&] { set(settings, "heads_per_stage=" + heads); });
                    if (!chunk.empty()) settings.chunk_tokens = parse_tokens(chunk, "--chunk-tokens");
                    RunCase one{fmt::format("{} {} {}{}", method, context, heads, chunk),
                                model,
                                cluster,
                                {},
                                options.blocks_only,
                                ""};
                    try {
                        one.recipe = resolve(settings, published_recipe(chosen), model, cluster);
                        one.name = name_of(one.recipe);
                        one.invalid = why_not_run(make_workload(model, cluster, one.recipe));
                    } catch (const Error& error) {
                        one.invalid =
                            error.where().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.where());
                    }
                    cases.push_back(std::move(one));
                }
            }
        }
    }
    require_use(Method::upipe, options.heads_per_stage, "--heads-per-stage", options);
    require_use(Method::fpdt, options.chunk_tokens, "--chunk-tokens", options);
    return cases;
}

}  // namespace headroom
