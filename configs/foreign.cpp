// SPDX-License-Identifier: Apache-2.0
#include "configs/foreign.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "configs/inline.hpp"
#include "configs/load.hpp"

namespace headroom {
namespace {

enum class Kind { recipe, toml, script };
using Reader = std::function<std::string(const std::string&)>;

std::string trimmed(const std::string& line) {
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) return {};
    return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

/// By the first line that says something: `#!`, `[section]`, or `key = value`.
Kind kind_of(const std::string& text) {
    if (text.starts_with("#!")) return Kind::script;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        line = trimmed(line);
        if (line.empty() || line.front() == '#') continue;
        const bool section =
            line.front() == '[' && line.find(']') != std::string::npos &&
            line.find_first_not_of("[]abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") >=
                line.find(']') + 1;
        const std::size_t word = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.");
        const bool assignment = word != std::string::npos && word > 0 && trimmed(line.substr(word)).starts_with('=');
        return section || assignment ? Kind::toml : Kind::recipe;
    }
    return Kind::recipe;
}

void add_left(const ForeignFile& file, const std::string& path, std::vector<std::string>& notes) {
    constexpr std::size_t named = 8;
    std::vector<std::string> left = file.left();
    if (left.size() > named + 1) {
        left[named] = fmt::format("and {} more", left.size() - named);
        left.resize(named + 1);
    }
    if (!left.empty()) notes.push_back(fmt::format("{}: not part of a recipe: {}", path, fmt::join(left, ", ")));
}

void name_model(const ForeignFile& file, const char* key, RecipeFile& result) {
    const Value* value = file.look(key);
    if (value == nullptr) return;
    const Value* family = file.look("model.name");
    result.model = {(family == nullptr ? "" : text(*family) + " ") + text(*value), value->where()};
}

void read_root(const Value& root, const std::string& path, RecipeFile& result) {
    ForeignFile file(root);
    if (is_torchtitan(root)) {
        read_torchtitan(file, result.settings);
        name_model(file, "model.flavor", result);
    } else if (is_alst(root)) {
        read_alst(file, result.settings, result.notes);
        name_model(file, "model.name_or_path", result);
    } else {
        read_deepspeed(file, result.settings);
        // The code around it is not known; DeepSpeed's sequence parallelism is modelled as ALST has it.
        result.guess.method = Method::ulysses;
        result.guess.implementation = Implementation::alst;
    }
    add_left(file, path, result.notes);
}

/// A file that a script names, relative to the script.
void read_named(ForeignFile& script, const std::string& flag, const std::filesystem::path& directory,
                const Reader& read, RecipeFile& result) {
    const Value* named = script.look("flags." + flag);
    // --deepspeed alone turns it on, and names a file in the scripts of the Hugging Face trainer.
    if (named == nullptr || (flag == "deepspeed" && !named->text.ends_with(".json"))) return;
    script.take("flags." + flag);
    const std::string path = (directory / text(*named)).string();
    const std::string inside = read(path);
    if (kind_of(inside) == Kind::script) {
        throw Error("a script that starts another is not followed", named->where(), "name the inner one");
    }
    RecipeFile inner = read_recipe_text(inside, path, read);
    result.settings = layer(inner.settings, result.settings);
    result.guess = layer(inner.guess, result.guess);
    if (inner.model) result.model = std::move(inner.model);
    result.notes.insert(result.notes.end(), inner.notes.begin(), inner.notes.end());
}

/// A plan of nothing but defaults would pass for one of the script.
void refuse_unread(Settings read, const std::string& path) {
    read.expandable_segments.reset();
    if (read != Settings{}) return;
    throw Error("nothing in this script is a setting that is known here", path,
                "name the TOML, JSON or YAML file that it starts with; flags of a program of your own are not read");
}

RecipeFile read_script(const std::string& text, const std::string& path, const Reader& read) {
    RecipeFile result;
    const Value root = parse_script(text, path);
    ForeignFile script(root);
    const std::filesystem::path directory = std::filesystem::path(path).parent_path();
    for (const char* flag : {"job.config_file", "deepspeed_config", "deepspeed", "config"}) {
        read_named(script, flag, directory, read, result);
    }
    Settings said;
    read_environment(script, said);
    read_megatron_flags(script, said);
    result.settings = layer(said, result.settings);
    if (result.settings.method) result.guess = {};
    refuse_unread(result.settings, path);
    add_left(script, path, result.notes);
    return result;
}

}  // namespace

const Value* ForeignFile::search(const Value& root, std::string_view key) {
    // Flags have dots in their names: the longest name first.
    if (const Value* whole = find(root, key)) return whole;
    const std::size_t dot = key.find('.');
    if (dot == std::string_view::npos) return nullptr;
    const Value* group = find(root, key.substr(0, dot));
    return group == nullptr || !group->is_map() ? nullptr : search(*group, key.substr(dot + 1));
}

const Value* ForeignFile::take(std::string_view key) {
    taken_.emplace(key);
    return look(key);
}

const Value* ForeignFile::look(std::string_view key) const {
    const Value* value = search(root_, key);
    if (value == nullptr || value->is_null()) return nullptr;
    if (value->kind == Value::Kind::scalar && value->text == "auto") return nullptr;
    return value;
}

bool ForeignFile::has(std::string_view key) const { return search(root_, key) != nullptr; }

void ForeignFile::collect(const Value& map, std::vector<std::string>& keys) const {
    for (const Value& item : map.items) {
        if (taken_.contains(item.key)) continue;
        const bool partly = std::any_of(taken_.begin(), taken_.end(), [&](const std::string& taken) {
            return taken.starts_with(item.key + ".") && search(root_, taken) != nullptr;
        });
        if (item.is_map() && partly) {
            collect(item, keys);
        } else {
            keys.push_back(item.key);
        }
    }
}

std::vector<std::string> ForeignFile::left() const {
    std::vector<std::string> keys;
    collect(root_, keys);
    return keys;
}

RecipeFile read_recipe_text(const std::string& text, const std::string& path, const Reader& read) {
    RecipeFile result;
    const Kind kind = kind_of(text);
    if (kind == Kind::script) result = read_script(text, path, read);
    result.machine = read_machine_comment(text, path);
    if (kind == Kind::script) return result;
    const Value root = kind == Kind::toml ? parse_toml(text, path) : parse_yaml(text, path);
    if (kind == Kind::toml && !is_torchtitan(root)) {
        throw Error("this TOML has none of torchtitan's sections", path,
                    "torchtitan files hold [training], [parallelism] or [activation_checkpoint]");
    }
    if (kind == Kind::toml || is_deepspeed(root) || is_alst(root)) {
        read_root(root, path, result);
    } else {
        result.settings = read_recipe(root);
    }
    return result;
}

RecipeFile load_recipe_file(const std::string& path) {
    return read_recipe_text(read_text_file(path), path, read_text_file);
}

}  // namespace headroom
