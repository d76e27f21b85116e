// SPDX-License-Identifier: Apache-2.0
// The only file that includes yaml-cpp. Its event interface is used instead of YAML::Node because a Node keeps the
// first of two equal keys silently, converts `yes` and `010`, and does not say whether a scalar was quoted.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "configs/reader.hpp"

namespace headroom {
namespace {

constexpr std::size_t largest_config = std::size_t{16} << 20;  // tokenizer files and weights are larger

std::string place_of(const std::string& file, const YAML::Mark& mark) {
    return fmt::format("{}:{}:{}", file, mark.line + 1, mark.column + 1);
}

struct KeyIsNoWord {
    YAML::Mark mark;
};

/// Where the outermost bracket stands that is still open at the end; empty when there is none. Only asked after
/// parsing has failed: yaml-cpp takes the beginning of a JSON file that was cut off for a key.
std::string open_bracket(const std::string& text, const std::string& file) {
    std::vector<YAML::Mark> open;
    YAML::Mark mark;
    mark.line = mark.column = 0;
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '"' && (i == 0 || text[i - 1] != '\\')) in_string = !in_string;
        if (!in_string && (c == '{' || c == '[')) open.push_back(mark);
        if (!in_string && (c == '}' || c == ']') && !open.empty()) open.pop_back();
        mark.column = c == '\n' ? 0 : mark.column + 1;
        mark.line += c == '\n' ? 1 : 0;
    }
    return open.empty() ? "" : place_of(file, open.front());
}

/// Builds Values from parser events. `open_` holds the lists and maps that are not closed yet.
class ValueBuilder : public YAML::EventHandler {
 public:
    explicit ValueBuilder(const std::string& file) : file_(file) {}

    Value take() { return std::move(root_); }

    void OnDocumentStart(const YAML::Mark&) override {}
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(mark, Value::Kind::null, {}, false); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
        throw Error("aliases (*name) are not read", place_of(file_, mark), "write the value out");
    }
    void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& text) override {
        if (tag != "?" && tag != "!" && !tag.empty()) {
            throw Error(fmt::format("tags are not read: {}", tag), place_of(file_, mark), "remove the tag");
        }
        add(mark, Value::Kind::scalar, text, tag == "!");
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                         YAML::EmitterStyle::value) override {
        open(mark, Value::Kind::list);
    }
    void OnSequenceEnd() override { close(); }
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
        open(mark, Value::Kind::map);
    }
    void OnMapEnd() override { close(); }

 private:
    struct Open {
        Value value;
        bool has_key = false;
        std::string next_key;
    };

    bool expects_key() const { return !open_.empty() && open_.back().value.is_map() && !open_.back().has_key; }

    Value named(const YAML::Mark& mark, Value::Kind kind) {
        Value value;
        value.kind = kind;
        value.place = place_of(file_, mark);
        if (open_.empty()) return value;
        const Open& parent = open_.back();
        if (parent.value.is_list()) {
            value.key = fmt::format("{}[{}]", parent.value.key, parent.value.items.size());
        } else {
            value.name = parent.next_key;
            value.key = parent.value.key.empty() ? value.name : parent.value.key + "." + value.name;
        }
        return value;
    }

    void add(const YAML::Mark& mark, Value::Kind kind, const std::string& text, bool quoted) {
        if (expects_key()) {
            open_.back().next_key = kind == Value::Kind::null ? "null" : text;
            open_.back().has_key = true;
            return;
        }
        Value value = named(mark, kind);
        value.text = text;
        value.quoted = quoted;
        store(std::move(value));
    }

    void open(const YAML::Mark& mark, Value::Kind kind) {
        if (expects_key()) throw KeyIsNoWord{mark};
        open_.push_back({named(mark, kind), false, {}});
    }

    void close() {
        Value value = std::move(open_.back().value);
        open_.pop_back();
        store(std::move(value));
    }

    void store(Value value) {
        if (open_.empty()) {
            root_ = std::move(value);
            return;
        }
        open_.back().has_key = false;
        open_.back().value.items.push_back(std::move(value));
    }

    const std::string& file_;
    Value root_;
    std::vector<Open> open_;
};

}  // namespace

std::string read_text_file(const std::string& path) {
    if (std::filesystem::is_directory(path)) {
        throw Error(fmt::format("'{}' is a directory, not a file", path), path, "name the file in it");
    }
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw Error(fmt::format("cannot read '{}': {}", path, std::strerror(errno)), path);
    std::string text(largest_config + 1, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(stream.gcount()));
    const std::string hint = "name a text file that holds something";
    if (text.size() > largest_config) {
        throw Error(fmt::format("'{}' is too large to be a config", path), path, "configs are smaller than 16 MiB");
    }
    if (text.find('\0') != std::string::npos) throw Error(fmt::format("'{}' is a binary file", path), path, hint);
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
        throw Error(fmt::format("'{}' is empty", path), path, hint);
    }
    return text;
}

Value parse_yaml(const std::string& text, const std::string& file) {
    std::istringstream stream(text);
    ValueBuilder builder(file);
    const auto refuse = [&](const std::string& what, const YAML::Mark& mark) {
        const std::string open = open_bracket(text, file);
        if (!open.empty()) return Error("the file ends before this bracket is closed", open, "is the file cut off?");
        return Error(what, place_of(file, mark), "check brackets, quotes, commas and indentation there");
    };
    try {
        YAML::Parser parser(stream);
        if (!parser.HandleNextDocument(builder)) throw Error("the file holds no values", file);
        Value root = builder.take();
        if (parser.HandleNextDocument(builder)) {
            throw Error("the file holds more than one document", file, "remove what follows the line '---' or '}'");
        }
        return root;
    } catch (const KeyIsNoWord& problem) {
        throw refuse("a key must be a word", problem.mark);
    } catch (const YAML::Exception& problem) {
        throw refuse(fmt::format("not valid YAML or JSON: {}", problem.msg), problem.mark);
    }
}

}  // namespace headroom
