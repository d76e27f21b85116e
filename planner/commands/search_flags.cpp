// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/search_flags.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "configs/load.hpp"
#include "configs/sizes.hpp"
#include "models/error.hpp"
#include "reports/table.hpp"

namespace headroom {

double read_percent(const Arguments& arguments, const std::string& flag, double otherwise) {
    const auto typed = arguments.get(flag);
    if (!typed) return otherwise;
    const std::string dashed = "--" + flag;
    std::string digits = *typed;
    if (!digits.empty() && digits.back() == '%') digits.pop_back();
    const Error refusal(fmt::format("{} of '{}' is not a percentage from 0 to below 100", flag, printable(*typed)),
                        dashed, fmt::format("write e.g. {} 2%", dashed));
    double percent = -1;
    try {
        percent = parse_number(digits, flag, dashed);
    } catch (const Error&) {
        throw refusal;
    }
    if (percent < 0 || percent >= 100) throw refusal;
    return percent / 100;
}

PublishedRecipes all_published_recipes() {
    PublishedRecipes published;
    for (std::size_t i = 0; i < published.size(); ++i) published[i] = published_recipe(static_cast<Method>(i));
    return published;
}

std::vector<std::string> split_list(const std::string& list, const std::string& flag) {
    std::vector<std::string> items;
    std::size_t at = 0;
    while (at <= list.size()) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        const std::string item = list.substr(at, end - at);
        const std::size_t first = item.find_first_not_of(' ');
        if (first == std::string::npos) {
            throw Error(fmt::format("'{}' has an empty item", printable(list)), flag,
                        "write values between the commas");
        }
        items.push_back(item.substr(first, item.find_last_not_of(' ') - first + 1));
        at = end + 1;
    }
    return items;
}

std::vector<Method> read_methods(const std::string& list) {
    std::vector<Method> methods;
    for (const std::string& name : split_list(list, "--method")) {
        Settings settings;
        try {
            set(settings, "method=" + name);
        } catch (const Error& error) {
            throw Error(error.what(), "--method", error.hint());
        }
        if (std::find(methods.begin(), methods.end(), *settings.method) != methods.end()) {
            throw Error(fmt::format("{} is named twice", name), "--method", "name each method once");
        }
        methods.push_back(*settings.method);
    }
    return methods;
}

}  // namespace headroom
