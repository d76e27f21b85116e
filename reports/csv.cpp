// SPDX-License-Identifier: Apache-2.0
#include "reports/csv.hpp"

namespace headroom {

std::string csv_field(std::string_view field) {
    if (field.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(field);
    std::string quoted = "\"";
    for (const char c : field) {
        if (c == '"') quoted += '"';
        quoted += c;
    }
    return quoted + '"';
}

std::string csv_line(const std::vector<std::string>& fields) {
    std::string line;
    for (const std::string& field : fields) {
        if (!line.empty() || &field != &fields.front()) line += ',';
        line += csv_field(field);
    }
    return line + '\n';
}

}  // namespace headroom
