// SPDX-License-Identifier: Apache-2.0
#include "configs/hf_fields.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace headroom {
namespace {

constexpr std::int64_t largest_size = std::int64_t{1} << 31;

const Value* map_at(const Value* map, std::string_view name) {
    const Value* value = map ? find(*map, name) : nullptr;
    return value && value->is_map() ? value : nullptr;
}

}  // namespace

HfFields::HfFields(const Value& root) : root_(root) {
    for (const std::string_view name : {"text_config", "language_config", "llm_config"}) {
        if (sections_.empty() && map_at(&root, name)) sections_.push_back(map_at(&root, name));
    }
    if (const Value* thinker = map_at(map_at(&root, "thinker_config"), "text_config"); thinker && sections_.empty()) {
        sections_.push_back(thinker);
    }
    if (!sections_.empty()) section_ = sections_.front()->key;
    sections_.push_back(&root);
}

const Value* HfFields::field(Names names) {
    for (const Value* section : sections_) {
        const Value* found = nullptr;
        bool named = false;
        for (const std::string_view name : names) {
            const Value* value = find(*section, name);
            named = named || value;
            if (!value || value->is_null()) continue;
            const bool disagree = found && found->kind == Value::Kind::scalar && found->text != value->text;
            if (disagree) {
                problem(fmt::format("{} {} and {} {} disagree", found->key, found->text, value->key, value->text),
                        value->where());
            }
            if (!found) found = value;
        }
        if (named) return found;
    }
    return nullptr;
}

bool HfFields::has(std::string_view name) {
    return std::any_of(sections_.begin(), sections_.end(), [&](const Value* section) { return find(*section, name); });
}

bool HfFields::is_null(std::string_view name) { return has(name) && !field({name}); }

template <class Read>
auto HfFields::read(Names names, Read read_value) -> std::optional<decltype(read_value(Value()))> {
    const Value* value = field(names);
    if (!value) return std::nullopt;
    try {
        return read_value(*value);
    } catch (const Error& error) {
        problem(error.what(), error.where());
        return std::nullopt;
    }
}

std::optional<std::int64_t> HfFields::count(Names names) {
    return read(names, [](const Value& value) {
        const std::int64_t number = integer(value);
        if (number < 0 || number > largest_size) {
            throw Error(fmt::format("{} cannot be {}", value.key, number), value.where());
        }
        return number;
    });
}

std::optional<std::int64_t> HfFields::size(Names names) {
    const auto number = count(names);
    if (!number || *number > 0) return number;
    const Value* value = field(names);
    problem(fmt::format("{} cannot be 0", value->key), value->where());
    return std::nullopt;
}

std::int64_t HfFields::required_size(Names names) {
    const std::size_t problems_before = problems_.size();
    const auto number = size(names);
    if (!number && problems_.size() == problems_before) missing(*names.begin());
    return number.value_or(0);
}

std::optional<bool> HfFields::flag(std::string_view name) { return read({name}, boolean); }

std::string HfFields::word(std::string_view name) { return read({name}, text).value_or(""); }

const Value* HfFields::list(std::string_view name) {
    const Value* value = field({name});
    if (!value || value->is_list()) return value;
    problem(fmt::format("{} must be a list, not {}", value->key, shown(*value)), value->where());
    return nullptr;
}

std::vector<std::string> HfFields::words(std::string_view name) {
    std::vector<std::string> result;
    const Value* values = list(name);
    if (!values) return result;
    for (const Value& item : values->items) {
        if (item.kind == Value::Kind::scalar) {
            result.push_back(item.text);
        } else {
            problem(fmt::format("{} must be a word, not {}", item.key, shown(item)), item.where());
        }
    }
    return result;
}

std::vector<std::string> HfFields::class_names() const {
    std::vector<std::string> names;
    for (const Value* section : sections_) {
        const Value* architectures = find(*section, "architectures");
        if (architectures && architectures->is_list() && !architectures->items.empty()) {
            names.push_back(architectures->items.front().text);
        }
        const Value* type = find(*section, "model_type");
        if (type && type->kind == Value::Kind::scalar) names.push_back(type->text);
    }
    std::erase(names, "");
    return names;
}

bool HfFields::top_level_has_map(std::string_view name) const { return map_at(&root_, name) != nullptr; }

std::string HfFields::key_containing(std::string_view part) const {
    for (const Value* section : sections_) {
        for (const Value& item : section->items) {
            if (item.name.find(part) != std::string::npos) return item.name;
        }
    }
    return {};
}

void HfFields::problem(const std::string& what, const std::string& where) {
    const auto same = [&](const Problem& other) { return other.what == what; };
    if (std::none_of(problems_.begin(), problems_.end(), same)) problems_.push_back({what, where});
}

void HfFields::missing(std::string_view name) {
    if (std::find(missing_.begin(), missing_.end(), name) == missing_.end()) missing_.emplace_back(name);
}

void HfFields::check() const {
    if (problems_.empty() && missing_.empty()) return;
    std::vector<std::string> sentences;
    std::string where;
    for (const Problem& problem : problems_) {
        sentences.push_back(problem.what);
        if (where.empty()) where = problem.where;
    }
    if (!missing_.empty()) sentences.push_back(fmt::format("missing {}", fmt::join(missing_, ", ")));
    if (where.empty()) where = sections_.front()->where();
    throw Error(fmt::format("{}", fmt::join(sentences, "; ")), where,
                "correct the config; a missing size is never guessed");
}

}  // namespace headroom
