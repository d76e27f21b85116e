// SPDX-License-Identifier: Apache-2.0
// The pages in a real browser: nothing complains, nothing is requested, every figure is drawn, everything is legible.
// HEADROOM_SCREENSHOTS=DIR keeps pictures of them.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/chromium.hpp"

namespace headroom {

namespace {

/// Colours in each canvas, and pixels that are painted.
constexpr const char* figures_script = R"js(
[...document.querySelectorAll('canvas')].map(canvas => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const colours = new Map();
  let painted = 0;
  for (let i = 0; i < pixels.length; i += 4) {
    if (pixels[i + 3] < 128) continue;
    painted += 1;
    const key = pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2];
    colours.set(key, (colours.get(key) || 0) + 1);
  }
  const box = canvas.getBoundingClientRect();
  const large = [...colours.values()].filter(count => count > 25).length;
  return { id: canvas.id, painted: painted / (canvas.width * canvas.height), colours: large,
           width: box.width, right: box.right };
})
)js";

/// Everything that reaches beyond the window, regions that scroll by themselves left out.
constexpr const char* overflow_script = R"js(
({ page: document.documentElement.scrollWidth, window: window.innerWidth,
   wide: [...document.querySelectorAll('body *')].filter(e => !e.closest('.table'))
     .filter(e => e.getBoundingClientRect().right > window.innerWidth + 0.5)
     .map(e => e.tagName + '.' + e.className) })
)js";

/// Contrast of every text with what is behind it (WCAG 2), least first; large text separately.
constexpr const char* contrast_script = R"js(
(() => {
  document.querySelectorAll('details').forEach(d => { d.open = true; });
  const parse = text => {
    const [r, g, b, a] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], alpha: a === undefined ? 1 : a };
  };
  const luminance = rgb => rgb.map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.alpha > 0) return colour.rgb;
    }
    return [255, 255, 255];
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const texts = [...document.body.querySelectorAll('*')].filter(e => !['SCRIPT', 'STYLE', 'CANVAS'].includes(e.tagName))
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    .filter(e => e.getClientRects().length > 0);
  const style = getComputedStyle(document.documentElement);
  const hex = name => style.getPropertyValue('--' + name).trim().match(/\w\w/g).map(h => parseInt(h, 16));
  const page = luminance(hex('page'));
  const inks = [...Array(6).keys()].map(i => 'series-' + i).concat([...Array(9).keys()].map(i => 'part-' + i));
  return {
    texts: texts.length,
    text: Math.min(...texts.map(e => ratio(luminance(parse(getComputedStyle(e).color).rgb), luminance(behind(e))))),
    ink: Math.min(...inks.map(name => ratio(luminance(hex(name)), page))),
    small: Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))),
    light: page > 0.5,
  };
})()
)js";

constexpr const char* structure_script = R"js(
({ language: document.documentElement.lang, title: document.title,
   headings: [...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1])),
   canvases: [...document.querySelectorAll('canvas')].map(c => [c.getAttribute('role'), c.getAttribute('aria-label')]),
   figures_without_table: [...document.querySelectorAll('figure')].filter(f => f.querySelectorAll('tbody tr').length === 0).length,
   tables: [...document.querySelectorAll('table')].length,
   bare_tables: [...document.querySelectorAll('table')].filter(t => !t.caption || !t.caption.textContent.trim()
     || [...t.tHead.rows[0].cells].some(c => c.tagName !== 'TH' || c.scope !== 'col')
     || [...t.tBodies[0].rows].some(r => r.cells[0].tagName !== 'TH' || r.cells[0].scope !== 'row'
          || r.cells.length !== t.tHead.rows[0].cells.length)).length,
   broken_links: [...document.querySelectorAll('a[href^="#"]')].filter(a => !document.getElementById(a.hash.slice(1))).length,
   outside_links: [...document.querySelectorAll('[src], link[href], a[href]')]
     .filter(e => !/^(#|data:)/.test(e.getAttribute('src') || e.getAttribute('href'))).length,
   repeated_ids: [...document.querySelectorAll('[id]')].map(e => e.id).filter((id, i, all) => all.indexOf(id) !== i) })
)js";

/// What would be cut or missing on paper.
constexpr const char* paper_script = R"js(
(async () => {
  await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const width = document.documentElement.clientWidth;
  return { page: document.documentElement.scrollWidth, window: window.innerWidth,
    background: getComputedStyle(document.documentElement).backgroundColor,
    wide: [...document.querySelectorAll('main *')].filter(e => e.getClientRects().length > 0)
      .filter(e => e.getBoundingClientRect().right > width + 0.5).map(e => e.tagName + ' ' + e.textContent.slice(0, 40)),
    hidden_tables: [...document.querySelectorAll('table')].filter(t => t.getBoundingClientRect().height < 20).length };
})()
)js";

/// A screen's height each, as a person would look.
void keep_pictures(Chromium& browser, const std::string& name, int width, bool dark) {
    constexpr int height = 1400;
    for (int top = 0, number = 0; top < browser.page_height(); top += height) {
        browser.screenshot(
            name + "-" + std::to_string(width) + (dark ? "-dark-" : "-light-") + std::to_string(number++) + ".png", top,
            height);
    }
}

struct Least {
    std::size_t figures;
    int texts, tables;
};

void check_looks(Chromium& browser, const std::string& file, const Least& least) {
    const char* kept = std::getenv("HEADROOM_SCREENSHOTS");
    const std::string name = file.substr(file.rfind('/') + 1);
    for (const bool dark : {false, true}) {
        for (const int width : {400, 1600}) {
            CAPTURE(dark);
            CAPTURE(width);
            browser.open(file, width, 1000, dark);
            const auto figures = browser.evaluate(figures_script);
            CHECK(figures.size() >= least.figures);
            for (const auto& figure : figures) {
                CAPTURE(figure.dump());
                CHECK(figure["painted"].get<double>() > 0.01);
                CHECK(figure["colours"].get<int>() >= 3);
                CHECK(figure["width"].get<double>() > 250);
            }
            const auto overflow = browser.evaluate(overflow_script);
            CAPTURE(overflow.dump());
            CHECK(overflow["page"].get<int>() <= width);
            CHECK(overflow["window"].get<int>() == width);
            CHECK(overflow["wide"].empty());
            if (kept != nullptr) keep_pictures(browser, std::string(kept) + "/" + name, width, dark);
            const auto contrast = browser.evaluate(contrast_script);
            CAPTURE(contrast.dump());
            CHECK(contrast["light"].get<bool>() == !dark);
            CHECK(contrast["texts"].get<int>() > least.texts);
            CHECK(contrast["text"].get<double>() >= 4.5);
            CHECK(contrast["ink"].get<double>() >= 3.0);
            CHECK(contrast["small"].get<double>() >= 12);
            for (const std::string& complaint : browser.complaints()) FAIL_CHECK(complaint);
            for (const std::string& request : browser.requests()) FAIL_CHECK(request);
        }
    }
}

void check_structure(Chromium& browser, const Least& least) {
    const auto structure = browser.evaluate(structure_script);
    CAPTURE(structure.dump());
    CHECK(structure["language"] == "en");
    CHECK(structure["title"].get<std::string>().size() > 10);
    int before = 0;
    for (const int level : structure["headings"]) {
        CHECK(level <= before + 1);
        CHECK((level == 1) == (before == 0));
        before = level;
    }
    for (const auto& canvas : structure["canvases"]) {
        CHECK(canvas[0] == "img");
        CHECK(canvas[1].get<std::string>().size() > 60);
    }
    CHECK(structure["figures_without_table"] == 0);
    CHECK(structure["tables"].get<int>() > least.tables);
    CHECK(structure["bare_tables"] == 0);
    CHECK(structure["broken_links"] == 0);
    CHECK(structure["outside_links"] == 0);
    CHECK(structure["repeated_ids"].empty());
}

/// On paper: figures and tables are inside the page, colours are those of daylight, and all data are printed.
void check_print(Chromium& browser, const std::string& file) {
    browser.open(file, 1600, 1000, true);
    const std::string pdf = browser.print();
    CHECK(pdf.starts_with("%PDF-"));
    if (const char* kept = std::getenv("HEADROOM_SCREENSHOTS")) {
        std::ofstream(std::string(kept) + "/" + file.substr(file.rfind('/') + 1) + ".pdf", std::ios::binary) << pdf;
    }
    browser.emulate_paper();
    const auto paper = browser.evaluate(paper_script);
    CAPTURE(paper.dump());
    CHECK(paper["page"].get<int>() <= paper["window"].get<int>());
    CHECK(paper["wide"].empty());
    CHECK(paper["hidden_tables"] == 0);
    CHECK(paper["background"].get<std::string>() == "rgb(255, 255, 255)");
    for (const std::string& complaint : browser.complaints()) FAIL_CHECK(complaint);
}

void check_in_browser(const std::string& file, const Least& least) {
    const auto program = find_chromium();
    if (!program) {
        MESSAGE("skipped: Chromium is not installed");
        return;
    }
    Chromium browser(*program);
    check_looks(browser, file, least);
    check_structure(browser, least);
    check_print(browser, file);
}

}  // namespace

TEST_CASE("the report in Chromium: drawn, legible, silent and offline, at 400 and 1600 px, light and dark, on paper") {
    const TemporaryDirectory directory;
    const std::string file = directory.path("report.html");
    REQUIRE(run_headroom({"report", "-o", file}).status == 0);
    check_in_browser(file, {8, 200, 10});
}

TEST_CASE("the page of a sweep in Chromium: the same") {
    const TemporaryDirectory directory;
    const std::string file = directory.path("sweep.html");
    REQUIRE(run_headroom({"sweep", "--method", "native,ring,ulysses,usp,fpdt,upipe", "--context", "256K:6M:256K",
                          "--batch", "1,2", "--set", "tiling.mlp=off,auto", "--format", "html", "-o", file})
                .status == 0);
    check_in_browser(file, {4, 100, 8});
}

TEST_CASE("the page of a sweep over several machines in Chromium: the same") {
    const TemporaryDirectory directory;
    const std::string file = directory.path("machines.html");
    REQUIRE(run_headroom({"sweep", "--method", "ulysses,upipe", "--nodes", "1,2", "--model", "llama3-8b,qwen3-8b",
                          "--context", "512K:4M:x2", "--format", "html", "-o", file})
                .status == 0);
    check_in_browser(file, {13, 100, 12});
}

TEST_CASE("pages of sweeps with little in them: one row, nothing that fits, nothing valid, no step times") {
    const auto program = find_chromium();
    if (!program) {
        MESSAGE("skipped: Chromium is not installed");
        return;
    }
    Chromium browser(*program);
    const TemporaryDirectory directory;
    const std::string file = directory.path("page.html");
    const std::vector<std::vector<std::string>> sweeps{
        {"--context", "1M"},
        {"--context", "40M,80M"},
        {"--context", "1M", "--method", "ulysses", "--heads-per-stage", "8"},
        {"--context", "256K,100000", "--method", "ulysses,upipe", "--cluster", "a100-sxm-80gb", "--attention-kernel",
         "fa3"},
    };
    for (const auto& flags : sweeps) {
        std::vector<std::string> words{"sweep", "--format", "html", "-o", file};
        words.insert(words.end(), flags.begin(), flags.end());
        CAPTURE(words);
        REQUIRE(run_headroom(words).status == 0);
        browser.open(file, 400, 1000, false);
        const auto overflow = browser.evaluate(overflow_script);
        CAPTURE(overflow.dump());
        CHECK(overflow["wide"].empty());
        CHECK(browser.evaluate(figures_script).size() >= 1);
        for (const std::string& complaint : browser.complaints()) FAIL_CHECK(complaint);
        check_structure(browser, {1, 0, 1});
    }
}

}  // namespace headroom
