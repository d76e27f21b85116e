// SPDX-License-Identifier: Apache-2.0
// Completions and the manual page hold what --help holds, and shells take them.
#include <doctest/doctest.h>

#include <algorithm>

#include "planner/commands/commands.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

/// What bash offers for a line whose last word is being typed.
std::vector<std::string> offered(const std::string& line) {
    const Outcome outcome =
        run_shell("bash -c 'source <(\"$HEADROOM\" completion bash) && COMP_WORDS=(" + line +
                  ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _headroom && printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    return lines_of(outcome.out);
}

bool installed(const std::string& program) {
    if (run_shell("command -v " + program).status == 0) return true;
    MESSAGE("skipped: " << program << " is not installed");
    return false;
}

/// What zsh offers for each line, typed with Tab behind it into a shell of its own. Offers are taken where the
/// completion system adds them, so neither menus nor colours are in the way.
constexpr const char* zsh_script = R"zsh(
zmodload zsh/zpty
offers=$1/offers
zpty child zsh -f
zpty -w child "autoload -Uz compinit && compinit -D -u && source $1/_headroom"
zpty -w child "cd $1; compadd() { local -a hits; builtin compadd -O hits \"\$@\"; print -rl -- \$hits >>$offers; builtin compadd \"\$@\"; }"
zpty -w child "offered() { print -r -- END >>$offers; zle kill-whole-line }; zle -N offered; bindkey '^X^X' offered; bindkey '^I' complete-word"
shift
integer count=0
for line; do
    zpty -w -n child $line$'\t\x18\x18'
    (( ++count ))
    repeat 400; do
        [[ -r $offers && $(grep -c END $offers) -ge $count ]] && break
        sleep 0.05
    done
done
zpty -d child
cat $offers
)zsh";

std::vector<std::vector<std::string>> offered_by_zsh(const TemporaryDirectory& directory,
                                                     const std::vector<std::string>& lines) {
    directory.write("_headroom", run_headroom({"completion", "zsh"}).out);
    std::string command = "timeout 60 zsh -f " + directory.write("type.zsh", zsh_script) + " " + directory.path();
    for (const std::string& line : lines) command += " '" + line + "'";
    const Outcome outcome = run_shell(command);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    std::vector<std::vector<std::string>> offers(1);
    for (const std::string& line : lines_of(outcome.out)) {
        if (line == "END") {
            offers.emplace_back();
        } else if (!line.empty() &&
                   std::find(offers.back().begin(), offers.back().end(), line) == offers.back().end()) {
            offers.back().push_back(line);
        }
    }
    offers.pop_back();
    REQUIRE(offers.size() == lines.size());
    return offers;
}

/// What fish offers, without the descriptions.
std::vector<std::string> offered_by_fish(const TemporaryDirectory& directory, const std::string& line) {
    directory.write("headroom.fish", run_headroom({"completion", "fish"}).out);
    const Outcome outcome = run_shell("cd " + directory.path() + " && HOME=" + directory.path() +
                                      " fish --no-config -c \"source headroom.fish; complete -C '" + line + "'\"");
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    std::vector<std::string> words = lines_of(outcome.out);
    for (std::string& word : words) word = word.substr(0, word.find('\t'));
    return words;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// Long flags in the help of a command.
std::vector<std::string> flags_in_help(const std::string& command) {
    std::vector<std::string> flags;
    for (const std::string& line : lines_of(run_headroom({command, "--help"}).out)) {
        const std::size_t at = line.find("--");
        if (!line.starts_with("  ") || at == std::string::npos || at > 6) continue;
        flags.push_back(line.substr(at, line.find_first_of(" ,", at) - at));
    }
    return flags;
}

}  // namespace

TEST_CASE("every command describes itself") {
    for (const Command& command : commands) {
        CAPTURE(command.name);
        const bool described = command.synopsis != nullptr;
        REQUIRE(described);
        CHECK(command.synopsis().command == std::string("headroom ") + command.name);
    }
}

TEST_CASE("every flag of every help stands in all completions and in the manual page") {
    const std::string bash = run_headroom({"completion", "bash"}).out;
    const std::string zsh = run_headroom({"completion", "zsh"}).out;
    const std::string fish = run_headroom({"completion", "fish"}).out;
    const std::string manual = run_headroom({"completion", "man"}).out;
    std::size_t count = 0;
    for (const Command& command : commands) {
        CHECK(contains(manual, "headroom " + std::string(command.name).substr(0, 3)));
        for (const std::string& flag : flags_in_help(command.name)) {
            CAPTURE(command.name);
            CAPTURE(flag);
            ++count;
            std::string escaped;
            for (const char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
            CHECK(contains(manual, "\\fB" + escaped + "\\fR"));
            CHECK(contains(bash, flag));
            CHECK(contains(zsh, flag + "["));
            CHECK(contains(
                fish, " '__fish_seen_subcommand_from " + std::string(command.name) + "' -l " + flag.substr(2) + " "));
        }
    }
    CHECK(count > 50);
    CHECK(run_headroom({"completion"}).status == 2);
    CHECK(contains(run_headroom({"completion", "bsh"}).err, "did you mean bash?"));
}

TEST_CASE("bash completes commands, flags and values") {
    if (!installed("bash")) return;
    CHECK(offered("headroom pl") == std::vector<std::string>{"plan"});
    CHECK(has(offered("headroom \"\""), "max-context"));
    CHECK(offered("headroom plan --heads") == std::vector<std::string>{"--heads-per-stage"});
    CHECK(offered("headroom plan --cluster h100") == std::vector<std::string>{"h100-pcie-80gb", "h100-sxm-80gb"});
    CHECK(has(offered("headroom plan --method \"\""), "upipe"));
    CHECK(offered("headroom sweep --method ring,u") ==
          std::vector<std::string>{"ring,ulysses", "ring,usp", "ring,upipe"});
    CHECK(offered("headroom sweep --format \"\"") == std::vector<std::string>{"csv", "jsonl", "html"});
    CHECK(offered("headroom show model qwen3-3") == std::vector<std::string>{"qwen3-32b"});
    CHECK(offered("headroom launch --target mega") == std::vector<std::string>{"megatron-deepspeed"});
    CHECK(has(offered("headroom show \"\""), "models"));
    CHECK(!has(offered("headroom max-context --\"\""), "--context"));
}

TEST_CASE("zsh completes commands, flags, values, lists and files") {
    if (!installed("zsh")) return;
    const TemporaryDirectory directory;
    directory.write("recipe.yaml", "");
    const auto offers =
        offered_by_zsh(directory, {"headroom pl", "headroom plan --heads", "headroom plan --cluster h100",
                                   "headroom sweep --method ring,u", "headroom sweep --format ",
                                   "headroom launch --target mega", "headroom show model qwen3-3",
                                   "headroom plan --recipe rec", "headroom max-context --con", "headroom calibrate p"});
    CHECK(offers[0] == Words{"plan"});
    CHECK(offers[1] == Words{"--heads-per-stage"});
    CHECK(offers[2] == Words{"h100-pcie-80gb", "h100-sxm-80gb"});
    CHECK(offers[3] == Words{"ulysses", "usp", "upipe"});
    CHECK(offers[4] == Words{"csv", "jsonl", "html"});
    CHECK(offers[5] == Words{"megatron-deepspeed"});
    CHECK(offers[6] == Words{"qwen3-32b"});
    CHECK(has(offers[7], "recipe.yaml"));
    CHECK(!has(offers[8], "--context"));
    CHECK(offers[9] == Words{"probes"});
}

TEST_CASE("fish completes commands, flags, values, lists and files") {
    if (!installed("fish")) return;
    const TemporaryDirectory directory;
    directory.write("recipe.yaml", "");
    const auto offers = [&](const std::string& line) { return offered_by_fish(directory, line); };
    CHECK(offers("headroom pl") == Words{"plan"});
    CHECK(offers("headroom plan --heads") == Words{"--heads-per-stage"});
    CHECK(offers("headroom plan --cluster h100") == Words{"h100-pcie-80gb", "h100-sxm-80gb"});
    CHECK(offers("headroom sweep --method ring,u") == Words{"ring,ulysses", "ring,upipe", "ring,usp"});
    CHECK(offers("headroom sweep --format ") == Words{"csv", "html", "jsonl"});
    CHECK(offers("headroom launch --target mega") == Words{"megatron-deepspeed"});
    CHECK(offers("headroom show model qwen3-3") == Words{"qwen3-32b"});
    CHECK(has(offers("headroom plan --recipe rec"), "recipe.yaml"));
    CHECK(offers("headroom max-context --con").empty());
    CHECK(has(offers("headroom calibrate fit rec"), "recipe.yaml"));
}

TEST_CASE("the manual page is set without a warning, and holds the examples of all commands") {
    const TemporaryDirectory directory;
    const std::string page = directory.write("headroom.1", run_headroom({"completion", "man"}).out);
    CHECK(contains(read_file(page), ".TH HEADROOM 1"));
    if (installed("groff")) {
        const Outcome outcome = run_shell("groff -man -Tutf8 -ww -z " + page);
        CHECK(outcome.status == 0);
        CHECK(outcome.err.empty());
    }
    if (!installed("man")) return;
    const Outcome shown = run_shell("MANWIDTH=80 LC_ALL=C.UTF-8 man --warnings -l " + page + " | col -b");
    CHECK(shown.err.empty());
    for (const Command& command : commands) CHECK(contains(shown.out, "headroom " + std::string(command.name)));
    for (const std::string& line : lines_of(shown.out)) {
        CAPTURE(line);
        CHECK(line.size() <= 84);  // bytes; a few signs are longer than one
    }
}

TEST_CASE("the examples in the help work as they stand") {
    const TemporaryDirectory directory;
    directory.write("run.yaml", "method: upipe\ncontext: 1M\n");
    int run = 0;
    for (const Command& command : commands) {
        for (const std::string& example : command.synopsis().examples) {
            CAPTURE(example);
            // What reads files of the user's, needs a GPU, or a terminal.
            bool needs = std::string(command.name) == "calibrate" || contains(example, "--resume");
            for (const char* file :
                 {"./", "a.yaml", "surface.yaml", "runs.csv", "man -l", "| source", "zsh)", ".toml", "run/"}) {
                needs |= contains(example, file);
            }
            if (needs) continue;
            const Outcome outcome =
                run_shell("cd " + directory.path() + " && ln -sf \"$HEADROOM\" headroom; PATH=.:$PATH; bash -c '" +
                          example + "'");
            CAPTURE(outcome.err);
            CHECK(outcome.status == 0);
            ++run;
        }
    }
    CHECK(run > 20);
}

TEST_CASE("a name that begins several is answered with all of them") {
    const Outcome outcome = run_headroom({"plan", "--context", "1M", "--cluster", "h100"});
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.err, "did you mean h100-pcie-80gb or h100-sxm-80gb?"));
}

}  // namespace headroom
