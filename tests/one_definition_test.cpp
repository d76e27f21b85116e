// SPDX-License-Identifier: Apache-2.0
// No two types of the namespace share a name. A linker does not say so: it keeps one of the functions that both make,
// and the program works until an optimiser decides otherwise.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <string>

namespace {

/// Types that begin in the first column of a header, whose names a whole program shares.
std::multimap<std::string, std::string> types_of_headers(const std::filesystem::path& root) {
    const std::regex type(
        R"(^(?:struct|class|enum class|union) (?:alignas\(\d+\) )?(\w+)[^;]*$|^(?:struct|class) (\w+) \{.*\};$)");
    std::multimap<std::string, std::string> types;
    for (const char* floor : {"models", "planner", "simulator", "reports", "configs", "calibrate", "tests"}) {
        for (const auto& entry : std::filesystem::recursive_directory_iterator(root / floor)) {
            if (entry.path().extension() != ".hpp" && entry.path().extension() != ".cuh") continue;
            std::ifstream file(entry.path());
            for (std::string line; std::getline(file, line);) {
                std::smatch found;
                if (!std::regex_match(line, found, type)) continue;
                types.emplace(found[1].matched ? found[1] : found[2], entry.path().string());
            }
        }
    }
    return types;
}

}  // namespace

TEST_CASE("every type of a header has a name of its own") {
    const auto types = types_of_headers(std::filesystem::path(HEADROOM_TEST_DATA).parent_path().parent_path());
    CHECK(types.size() > 200);
    for (auto at = types.begin(); at != types.end(); at = types.upper_bound(at->first)) {
        CAPTURE(at->first);
        CAPTURE(at->second);
        CHECK(types.count(at->first) == 1);
    }
}
