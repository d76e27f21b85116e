// SPDX-License-Identifier: Apache-2.0
// Models: built-in names, config.json files, and directories that hold one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "configs/builtin_data.hpp"
#include "configs/hf_config.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"

namespace headroom {
namespace {

namespace fs = std::filesystem;

/// A config.json is called after its directory, any other file after itself. In the Hugging Face cache
/// (models--Qwen--Qwen3-8B/snapshots/<commit>/config.json, a symbolic link) the name stands two directories up.
std::string name_of(const fs::path& config) {
    const fs::path full = fs::absolute(config).lexically_normal();
    if (full.filename() != "config.json") return full.stem().string();
    const fs::path directory = full.parent_path();
    const std::string cached = directory.parent_path().parent_path().filename().string();
    const std::size_t dashes = cached.rfind("--");
    const bool in_cache = directory.parent_path().filename() == "snapshots" && dashes != std::string::npos;
    return in_cache ? cached.substr(dashes + 2) : directory.filename().string();
}

Error unknown_name(const std::string& name) {
    const std::string list = "`headroom show models` lists the built-in models";
    const std::string near = did_you_mean(name, builtin_models());
    return Error(fmt::format("no built-in model, file or directory is called '{}'", name), name,
                 near.empty() ? list : fmt::format("did you mean {}? {}", near, list));
}

}  // namespace

ModelFile load_model_file(const std::string& name_or_path) {
    if (const auto text = builtin_text("models", name_or_path)) {
        const std::string file = "models/" + name_or_path + ".json";
        return import_hf_config(parse_yaml(std::string(*text), file), name_or_path, "built-in");
    }
    fs::path path(name_or_path);
    std::error_code ignored;
    if (name_or_path.empty() || !fs::exists(path, ignored)) throw unknown_name(name_or_path);
    if (fs::is_directory(path, ignored)) {
        path /= "config.json";
        if (!fs::exists(path, ignored)) {
            throw Error(fmt::format("directory '{}' holds no config.json", name_or_path), name_or_path,
                        "give a Hugging Face model directory or the file itself");
        }
    }
    const std::string file = path.string();
    return import_hf_config(parse_yaml(read_text_file(file), file), name_of(path), file);
}

Transformer load_model(const std::string& name_or_path) {
    const ModelFile model = load_model_file(name_or_path);
    if (model.refusals.empty()) return model.transformer;
    throw Error(fmt::format("{} cannot be planned: {}", model.name, fmt::join(model.refusals, "; ")), model.source,
                "Headroom plans dense decoder models in which every layer attends to the whole sequence");
}

std::vector<std::string> builtin_models() { return builtin_names("models"); }

}  // namespace headroom
