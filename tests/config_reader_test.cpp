// SPDX-License-Identifier: Apache-2.0
// Claim: a value is what was written, where it was written; nothing is converted, merged or dropped silently.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "configs/reader.hpp"
#include "tests/complaint.hpp"
#include "tests/run_headroom.hpp"

using namespace headroom;

namespace {

Value parse(const std::string& text) { return parse_yaml(text, "f.yaml"); }

/// The complaint when the value of `a` in `a: text` is read as something.
template <class Read>
std::string complaint_of(const std::string& written, Read read) {
    const Value root = parse("a: " + written + "\n");
    return complaint([&] { read(*find(root, "a")); });
}

constexpr std::array<std::string_view, 3> kernels{"fa2", "fa3", "cudnn"};

}  // namespace

TEST_CASE("YAML and JSON give the same values, with place and dotted key") {
    const Value yaml = parse("a:\n  b: [1, x]\n  c: null\n");
    const Value json = parse("{\n\t\"a\": {\"b\": [1, \"x\"], \"c\": null}}");
    for (const Value* root : {&yaml, &json}) {
        const Value* a = find(*root, "a");
        REQUIRE(a);
        const Value* b = find(*a, "b");
        REQUIRE(b);
        CHECK(b->key == "a.b");
        CHECK(b->is_list());
        CHECK(b->items.size() == 2);
        CHECK(b->items[1].text == "x");
        CHECK(b->items[1].key == "a.b[1]");
        CHECK(find(*a, "c")->is_null());
        CHECK(find(*a, "d") == nullptr);
    }
    CHECK(find(*find(yaml, "a"), "b")->where() == "f.yaml:2:6: a.b");
    CHECK_FALSE(find(*find(yaml, "a"), "b")->items[1].quoted);
    CHECK(find(*find(json, "a"), "b")->items[1].quoted);
}

TEST_CASE("typed readings") {
    const Value root = parse("n: 1e6\ng: 1_048_576\nx: 1e-05\nyes: true\nword: yes\nkernel: fa3\n");
    CHECK(integer(*find(root, "n")) == 1000000);
    CHECK(integer(*find(root, "g")) == 1048576);
    CHECK(number(*find(root, "x")) == 1e-5);
    CHECK(boolean(*find(root, "yes")));
    CHECK(text(*find(root, "word")) == "yes");
    CHECK(choice(*find(root, "kernel"), kernels) == 1);
}

TEST_CASE("integers refuse what other readers convert") {
    const auto read = [](const Value& value) { integer(value); };
    CHECK(complaint_of("010", read) ==
          "a must be a whole number, not '010' | f.yaml:1:4: a | write 10: a leading zero means octal to some readers");
    CHECK(contains(complaint_of("0x10", read), "not '0x10' | f.yaml:1:4: a | write it in decimal"));
    CHECK(contains(complaint_of("yes", read), "a must be a whole number, not 'yes'"));
    CHECK(contains(complaint_of("true", read), "a boolean is not counted as 0 or 1"));
    CHECK(contains(complaint_of("1.5", read), "write it without a decimal point"));
    CHECK(contains(complaint_of("\"8\"", read), "not the text \"8\" | f.yaml:1:4: a | remove the quotes"));
    CHECK(contains(complaint_of("~", read), "a must be a whole number, not null"));
    CHECK(contains(complaint_of("[1]", read), "not a list"));
    CHECK(contains(complaint_of("{b: 1}", read), "not a map"));
}

TEST_CASE("booleans are true and false only") {
    const auto read = [](const Value& value) { boolean(value); };
    CHECK(complaint_of("yes", read) == "a must be true or false, not 'yes' | f.yaml:1:4: a | write true");
    CHECK(contains(complaint_of("off", read), "write false"));
    CHECK(contains(complaint_of("0", read), "write false"));
    CHECK(contains(complaint_of("True", read), "write true"));
    CHECK(contains(complaint_of("\"true\"", read), "remove the quotes"));
}

TEST_CASE("words name their alternatives") {
    const auto read = [](const Value& value) { choice(value, kernels); };
    CHECK(complaint_of("fa4", read) ==
          "a must be one of fa2, fa3, cudnn, not 'fa4' | f.yaml:1:4: a | did you mean fa2?");
    CHECK(contains(complaint_of("[]", read), "a must be one of fa2, fa3, cudnn, not a list"));
}

TEST_CASE("duplicate and unknown keys are errors with both places") {
    const Value twice = parse("a: 1\nb: 2\na: 3\n");
    CHECK(complaint([&] { find(twice, "a"); }) ==
          "a stands twice | f.yaml:3:4: a | the first is at f.yaml:1:4; keep one of them");
    const std::vector<std::string> known{"a", "batch"};
    CHECK(contains(complaint([&] { reject_unknown_keys(twice, known); }), "a stands twice"));
    const Value misspelt = parse("batsh: 1\n");
    CHECK(complaint([&] { reject_unknown_keys(misspelt, known); }) ==
          "unknown key batsh | f.yaml:1:8: batsh | did you mean batch?");
    const Value strange = parse("wheels: 4\n");
    CHECK(contains(complaint([&] { reject_unknown_keys(strange, known); }), "known keys are a, batch"));
    CHECK(complaint([&] { reject_unknown_keys(parse("a: 1\n"), known); }) == "no error");
}

TEST_CASE("broken documents are refused where they break") {
    for (const char* cut : {"\n{\"a\": 1,\n \"b\": ", "\n{\"a\": [1,", "\n{\"a\": \"te", "\n{\"a\": {\"b\": 1}\n"}) {
        CHECK(complaint([&] { parse(cut); }) ==
              "the file ends before this bracket is closed | f.yaml:2:1 | is the file cut off?");
    }
    CHECK(contains(complaint([] { parse("{\"a\": 1\n \"b\": 2}"); }), "not valid YAML or JSON: "));
    CHECK(contains(complaint([] { parse("{\"a\": 1\n \"b\": 2}"); }), " | f.yaml:2:5 | check brackets"));
    CHECK(contains(complaint([] { parse("a: 1\n b: 2\n"); }), "illegal map value | f.yaml:2:3"));
    CHECK(contains(complaint([] { parse("a: 1\n---\nb: 2\n"); }), "more than one document"));
    CHECK(contains(complaint([] { parse("# nothing\n"); }), "holds no values"));
    CHECK(contains(complaint([] { parse("a: &x 1\nb: *x\n"); }), "aliases (*name) are not read | f.yaml:2:4"));
    CHECK(contains(complaint([] { parse("a: !!str 1\n"); }), "tags are not read"));
    CHECK(contains(complaint([] { parse("? [a]\n: 1\n"); }), "a key must be a word | f.yaml:1:3"));
    const std::string deep = std::string(5000, '[') + std::string(5000, ']');
    CHECK(contains(complaint([&] { parse(deep); }), "not valid YAML or JSON: "));
}
