// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <doctest/doctest.h>

#include "tests/run_headroom.hpp"

namespace headroom {

TEST_CASE("a table aligns its columns and leaves no blanks at the end of a line") {
    Table table({{"name"}, {"bytes", Align::right}, {"remark"}});
    table.row({"a", "1", "x"});
    table.row({"longer", "1,024"});
    CHECK(table.text() ==
          "name    bytes  remark\n"
          "a           1  x\n"
          "longer  1,024\n");
}

TEST_CASE("columns line up when names are not ASCII") {
    Table table({{"name"}, {"n", Align::right}});
    table.row({"modèle-日", "1"});
    table.row({"plain", "22"});
    const auto lines = lines_of(table.text());
    CHECK(display_width(lines[1]) == display_width(lines[2]));
}

TEST_CASE("a wrapping column gives way to keep the width") {
    Table table({{"method"}, {"limited by", Align::left, true}});
    table.row({"upipe", "GPU memory in the backward of the first block of the model"});
    for (const std::string& line : lines_of(table.text(40))) CHECK(display_width(line) <= 40);
    CHECK(lines_of(table.text(40)).size() == 3);
}

TEST_CASE("control characters of a name cannot reach the terminal") { CHECK(printable("a\033[31mb\n") == "a?[31mb?"); }

TEST_CASE("a paragraph keeps its hanging indent") {
    CHECK(paragraph("one two three", "x: ", 10) == "x: one two\n   three\n");
    CHECK(paragraph("") == "\n");
}

}  // namespace headroom
