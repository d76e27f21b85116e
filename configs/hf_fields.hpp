// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json as fields: several names for one thing, nested language models, null for "not given".
// Problems are gathered, so that one error tells everything that is wrong with a file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "configs/reader.hpp"

namespace headroom {

using Names = std::initializer_list<std::string_view>;

class HfFields {
 public:
    /// `root` must outlive the fields. Values of text_config, language_config, llm_config or
    /// thinker_config.text_config (the first of them there is) stand above those of the top level.
    explicit HfFields(const Value& root);

    /// The field under any of its names; nullptr when absent or null.
    const Value* field(Names names);
    bool has(std::string_view name);      ///< there, even as null
    bool is_null(std::string_view name);  ///< there, as null

    // Typed. A value of a wrong type is a problem and reads as absent; so does a size below 1 or beyond reason.
    std::optional<std::int64_t> size(Names names);
    std::int64_t required_size(Names names);         ///< absent is a problem, too; the first name is reported
    std::optional<std::int64_t> count(Names names);  ///< as size, but 0 is allowed
    std::optional<bool> flag(std::string_view name);
    std::string word(std::string_view name);  ///< empty when absent
    std::vector<std::string> words(std::string_view name);
    const Value* list(std::string_view name);

    /// What the file calls its model, most specific first: architectures and model_type of the nested language
    /// model, then of the top level.
    std::vector<std::string> class_names() const;
    /// The nested section that is read; empty at the top level.
    const std::string& section() const { return section_; }
    /// Whether the top level has this key as a map (vision_config, audio_config).
    bool top_level_has_map(std::string_view name) const;
    /// Whether any section that is read has a key that contains `part`; returns the first such key.
    std::string key_containing(std::string_view part) const;

    void problem(const std::string& what, const std::string& where = {});
    void missing(std::string_view name);
    /// Throws one Error for all problems so far.
    void check() const;

 private:
    template <class Read>
    auto read(Names names, Read read_value) -> std::optional<decltype(read_value(Value()))>;

    const Value& root_;
    std::string section_;
    std::vector<const Value*> sections_;
    struct Problem {
        std::string what, where;
    };
    std::vector<Problem> problems_;
    std::vector<std::string> missing_;
};

}  // namespace headroom
