// SPDX-License-Identifier: Apache-2.0
// Shell scripts as far as launch scripts go: words, quotes, continued lines and comments.
#include <fmt/format.h>

#include "configs/foreign.hpp"

namespace headroom {
namespace {

struct Word {
    std::string text;
    int line = 1, column = 1;
    bool quoted = false;
    bool variable = false;  ///< holds $, so its value is not in the file
};

class Words {
 public:
    explicit Words(const std::string& text) : text_(text) {}

    bool next(Word& word) {
        skip();
        if (at_ >= text_.size()) return false;
        word = {"", line_, column_, false, false};
        while (at_ < text_.size() && !blank(text_[at_])) {
            const char c = text_[at_];
            if (c == '\'' || c == '"') {
                quote(word, c);
            } else {
                if (c == '\\' && at_ + 1 < text_.size()) advance();
                if (text_[at_] == '$' && c != '\\') word.variable = true;
                word.text += text_[at_];
                advance();
            }
        }
        return true;
    }

 private:
    static bool blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ';'; }

    void advance() {
        column_ = text_[at_] == '\n' ? 1 : column_ + 1;
        line_ += text_[at_] == '\n' ? 1 : 0;
        ++at_;
    }
    void skip() {
        while (at_ < text_.size()) {
            if (blank(text_[at_])) {
                advance();
            } else if (text_[at_] == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
                advance();
                advance();
            } else if (text_[at_] == '#') {
                while (at_ < text_.size() && text_[at_] != '\n') advance();
            } else {
                return;
            }
        }
    }
    void quote(Word& word, char mark) {
        word.quoted = true;
        advance();
        while (at_ < text_.size() && text_[at_] != mark) {
            if (mark == '"' && text_[at_] == '$') word.variable = true;
            if (mark == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) advance();
            word.text += text_[at_];
            advance();
        }
        if (at_ < text_.size()) advance();
    }

    const std::string& text_;
    std::size_t at_ = 0;
    int line_ = 1, column_ = 1;
};

Value scalar_of(const Word& word, const std::string& file, const std::string& group, const std::string& name) {
    Value value;
    value.kind = Value::Kind::scalar;
    value.name = name;
    value.key = group + "." + name;
    value.place = fmt::format("{}:{}:{}", file, word.line, word.column);
    value.text = word.text;
    return value;
}

/// What the script leaves to a variable is not said.
void put(Value& group, Value value, bool variable) {
    std::erase_if(group.items, [&](const Value& item) { return item.name == value.name; });
    if (!variable) group.items.push_back(std::move(value));
}

/// `--name value`, `--name=value`, or `--name` alone, which is true.
void put_flag(Value& flags, const Word& word, const Word& ahead, const std::string& file) {
    const std::string name = word.text.substr(2, word.text.find('=') - 2);
    const bool equals = name.size() + 2 < word.text.size();
    const bool has_value = !equals && !ahead.text.starts_with("--") && !ahead.text.empty();
    Value value = scalar_of(has_value ? ahead : word, file, "flags", name);
    if (equals) value.text = word.text.substr(name.size() + 3);
    if (!equals && !has_value) value.text = "true";
    put(flags, std::move(value), equals ? word.variable : has_value && ahead.variable);
}

bool is_assignment(const std::string& text) {
    const std::size_t equals = text.find('=');
    return equals != std::string::npos && equals > 0 &&
           text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == equals;
}

}  // namespace

Value parse_script(const std::string& text, const std::string& file) {
    Value env, flags;
    for (auto [group, name] : {std::pair{&env, "env"}, std::pair{&flags, "flags"}}) {
        group->kind = Value::Kind::map;
        group->key = group->name = name;
        group->place = file;
    }
    Words words(text);
    Word word, ahead;
    bool pending = words.next(word);
    while (pending) {
        pending = words.next(ahead);
        if (is_assignment(word.text)) {
            const std::size_t equals = word.text.find('=');
            Value value = scalar_of(word, file, "env", word.text.substr(0, equals));
            value.text = word.text.substr(equals + 1);
            put(env, std::move(value), word.variable);
        } else if (word.text.starts_with("--") && word.text.size() > 2 && !word.quoted) {
            put_flag(flags, word, pending ? ahead : Word{}, file);
        } else if (word.text.ends_with(".yaml") || word.text.ends_with(".yml")) {
            put(flags, scalar_of(word, file, "flags", "config"), word.variable);
        }
        std::swap(word, ahead);
    }
    Value root;
    root.kind = Value::Kind::map;
    root.place = file;
    root.items = {std::move(env), std::move(flags)};
    return root;
}

}  // namespace headroom
