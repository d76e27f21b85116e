// SPDX-License-Identifier: Apache-2.0
// The documents of `headroom show`. Built as rows once, written as text, JSON or CSV.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headroom {

/// A cell: nothing, truth, an exact integer, a real number, text, or lines of text.
using Cell = std::variant<std::monostate, bool, std::int64_t, double, std::string, std::vector<std::string>>;
/// Name (snake_case with unit) and value, in the order of output.
using Record = std::vector<std::pair<std::string, Cell>>;

struct Document {
    std::string name;               ///< key in the JSON: "models", "model"
    bool single = false;            ///< one record in full: a list of lines in text, an object in JSON
    std::vector<Record> records;    ///< all with the same names
    std::size_t text_columns = 99;  ///< as many fit a page; text leaves out the rest
    bool settings = false;          ///< names are recipe keys: shown as typed, nested in JSON, left out when not said

    std::string text() const;
    std::string json() const;
    std::string csv() const;
};

Document show_models();
Document show_clusters();
Document show_recipes();
Document show_methods();
Document show_calibrations();
Document show_model(const std::string& name_or_path);
Document show_cluster(const std::string& name_or_path);
Document show_recipe(const std::string& method);
/// One row per constant: value, range, source and reference.
Document show_calibration(const std::string& name_or_path);

}  // namespace headroom
