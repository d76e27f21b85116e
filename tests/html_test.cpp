// SPDX-License-Identifier: Apache-2.0
// The HTML page: what goes in comes out escaped, figures carry their data as tables, colours can be told apart.
#include "reports/html.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "models/error.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Rgb = std::array<double, 3>;

double linear(double c) { return c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4); }

/// The linear light of `--name: #rrggbb` behind `from`.
Rgb colour(const std::string& style, const std::string& name, std::size_t from) {
    const std::string key = "--" + name + ": #";
    const std::size_t at = style.find(key, from);
    REQUIRE(at != std::string::npos);
    Rgb rgb{};
    for (std::size_t i = 0; i < 3; ++i) {
        rgb[i] = linear(std::stoi(style.substr(at + key.size() + 2 * i, 2), nullptr, 16) / 255.0);
    }
    return rgb;
}

/// CIE L*a*b* of linear sRGB under D65.
Rgb lab(const Rgb& c) {
    const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
    const double x = f((0.4124 * c[0] + 0.3576 * c[1] + 0.1805 * c[2]) / 0.95047);
    const double y = f(0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2]);
    const double z = f((0.0193 * c[0] + 0.1192 * c[1] + 0.9505 * c[2]) / 1.08883);
    return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

using Matrix = std::array<Rgb, 3>;

// Machado, Oliveira and Fernandes 2009, severity 1.0: normal, deuteranopia, protanopia, tritanopia.
constexpr std::array<Matrix, 4> eyes{{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}}},
    {{{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}}},
    {{{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}}},
}};

Rgb seen(const Matrix& eye, const Rgb& c) {
    Rgb result{};
    for (std::size_t i = 0; i < 3; ++i) {
        result[i] = std::clamp(eye[i][0] * c[0] + eye[i][1] * c[1] + eye[i][2] * c[2], 0.0, 1.0);
    }
    return result;
}

double distance(const Rgb& a, const Rgb& b) { return std::hypot(a[0] - b[0], a[1] - b[1], a[2] - b[2]); }

HtmlPage small_page() {
    HtmlPage page;
    page.title = "A <b>title</b> & more";
    page.verdict = "fits \"well\"";
    LineChart lines;
    lines.x = {"tokens", true, 1, 4, {{1, "one"}, {2, "</script><script>alert(1)</script>"}}};
    lines.lines.push_back({"<name>",
                           {Colour::Family::series, 2},
                           {{1, 10, 9.0, 11.0}, {2, 1.0 / 3, {}, {}}},
                           1,
                           true,
                           "",
                           ~std::size_t{0}});
    HtmlFigure figure{"one", "One", "", "what is seen", lines, {}, false};
    figure.data = {"the data", {{"name", false}, {"value", true}}, {{"x", "1.25"}, {"y", "<&>"}}};
    page.sections.push_back({"first", "First", {"a < b"}, {figure}, {}});
    page.command = "headroom report -o 'a & b.html'";
    page.made = "Made now";
    return page;
}

/// The figures' data as the page's script reads them.
nlohmann::json figure_data(const std::string& text) {
    const std::string open = "id=\"figure-data\">";
    const std::size_t at = text.find(open) + open.size();
    return nlohmann::json::parse(text.substr(at, text.find("</script>", at) - at));
}

}  // namespace

TEST_CASE("texts are escaped in the page and cannot leave the data") {
    const std::string text = html(small_page());
    CHECK(contains(text, "<title>A &lt;b&gt;title&lt;/b&gt; &amp; more</title>"));
    CHECK(contains(text, "<p>a &lt; b</p>"));
    CHECK(contains(text, "<code>headroom report -o &apos;a &amp; b.html&apos;</code>"));
    CHECK(!contains(text, "<b>title"));
    CHECK(!contains(text, "<script>alert"));
    const auto figures = figure_data(text);
    CHECK(figures[0]["x"]["ticks"][1][1] == "</script><script>alert(1)</script>");
    CHECK(figures[0]["lines"][0]["name"] == "<name>");
    CHECK(figures[0]["lines"][0]["colour"] == "series-2");
    CHECK(figures[0]["lines"][0]["points"] == nlohmann::json::parse("[[1,10,9,11],[2,0.33333]]"));
}

TEST_CASE("a figure's data stand in a table whose headers have a scope, without scripts") {
    const std::string text = html(small_page());
    CHECK(contains(text, "<caption>the data</caption>"));
    CHECK(contains(text, "<th scope=\"col\">name</th><th scope=\"col\" class=\"number\">value</th>"));
    CHECK(contains(text, "<tr><th scope=\"row\">x</th><td class=\"number\">1.25</td></tr>"));
    CHECK(contains(text, "aria-label=\"what is seen\""));
    CHECK(contains(text, "<p class=\"alternative\">what is seen</p>"));
}

TEST_CASE("series differ in luminance and for every kind of colour vision, light and dark") {
    const std::string style = html_style();
    for (const std::size_t theme : {std::size_t{0}, style.find("(prefers-color-scheme: dark)")}) {
        REQUIRE(theme != std::string::npos);
        std::vector<Rgb> colours;
        std::vector<double> lightness;
        for (int i = 0; i < series_colours; ++i) {
            colours.push_back(colour(style, "series-" + std::to_string(i), theme));
            lightness.push_back(lab(colours.back())[0]);
        }
        std::sort(lightness.begin(), lightness.end());
        for (std::size_t i = 1; i < lightness.size(); ++i) CHECK(lightness[i] - lightness[i - 1] > 4);
        for (const Matrix& eye : eyes) {
            for (std::size_t i = 0; i < colours.size(); ++i) {
                for (std::size_t j = 0; j < i; ++j) {
                    CAPTURE(i);
                    CAPTURE(j);
                    CHECK(distance(lab(seen(eye, colours[i])), lab(seen(eye, colours[j]))) > 15);
                }
            }
        }
        // Parts stand side by side in a stack: neighbours must part.
        for (int i = 1; i < part_colours; ++i) {
            const Rgb a = lab(colour(style, "part-" + std::to_string(i - 1), theme));
            const Rgb b = lab(colour(style, "part-" + std::to_string(i), theme));
            CAPTURE(i);
            CHECK(distance(a, b) > 20);
        }
    }
}

TEST_CASE("SOURCE_DATE_EPOCH sets the date") {
    ::unsetenv("SOURCE_DATE_EPOCH");
    CHECK(report_date(1'700'000'000) == "2023-11-14");
    ::setenv("SOURCE_DATE_EPOCH", "86400", 1);
    CHECK(report_date(1'700'000'000) == "1970-01-02");
    ::setenv("SOURCE_DATE_EPOCH", "tomorrow", 1);
    CHECK_THROWS_AS(report_date(0), Error);
    ::unsetenv("SOURCE_DATE_EPOCH");
}

TEST_CASE("headroom report: one file below 1 MB, the same bytes every time, with the verdict and the command") {
    const TemporaryDirectory directory;
    const std::vector<std::string> words{"report", "--gpus", "4", "--context", "1M", "--method", "usp"};
    std::vector<std::string> to_file = words;
    to_file.insert(to_file.end(), {"-o", directory.path("a.html")});
    const Outcome outcome = run_headroom(to_file, {"SOURCE_DATE_EPOCH=0"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.out.empty());
    const std::string text = read_file(directory.path("a.html"));
    CHECK(text.size() < 1'000'000);
    CHECK(contains(text, "Made on 1970-01-01"));
    CHECK(contains(text, "USP at 1M (1,048,576) tokens fits: "));
    CHECK(contains(text, "headroom report --gpus 4 --context 1M --method usp -o "));
    CHECK(run_headroom(to_file, {"SOURCE_DATE_EPOCH=0"}).status == 0);
    CHECK(read_file(directory.path("a.html")) == text);
    // The same numbers as plan gives.
    const std::string verdict = nlohmann::json::parse(
        run_headroom({"plan", "--gpus", "4", "--context", "1M", "--method", "usp", "--format", "json"}).out)["verdict"];
    CHECK(contains(text, verdict));
    CHECK(run_headroom({"report"}).status == 2);
    const Outcome impossible = run_headroom({"report", "--method", "upipe", "--heads-per-stage", "3", "-o", "-"});
    CHECK(impossible.status == 2);
    CHECK(contains(impossible.err, "--heads-per-stage"));
}

}  // namespace headroom
