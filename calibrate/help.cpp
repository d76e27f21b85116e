// SPDX-License-Identifier: Apache-2.0
// The help of headroom calibrate: of each action, and of all of them.
#include <array>

#include "calibrate/options.hpp"

namespace headroom {
namespace {

struct ActionHelp {
    CalibrateAction action;
    const char* name;
    const char* usage;
    const char* summary;
    const char* flags;
    const char* examples;
    const char* statuses;
};

constexpr std::array actions{
    ActionHelp{CalibrateAction::probes, "probes", "headroom calibrate probes [flags]",
               "Measures this machine: one JSON line for each finished probe.\n",
               "  --list            names of the probes, in the order they run; no GPU is\n"
               "                    needed\n"
               "  --dry-run         the same with the seconds and bytes they take; no GPU is\n"
               "                    needed\n"
               "  --gpus N          with these two: for so many GPUs, of nodes of 8\n"
               "                    (default 1)\n"
               "  --only GLOB       only these; may be repeated\n"
               "  --skip GLOB       not these; may be repeated\n"
               "  --budget SECONDS  leave out what does not fit in this time\n"
               "  --resume FILE     go on with a session that was ended; begin FILE if it is\n"
               "                    missing\n"
               "  -o, --output FILE a new file for the records; otherwise standard output\n",
               "  headroom calibrate probes --dry-run\n"
               "  headroom calibrate probes -o node7.jsonl\n"
               "  headroom calibrate probes --resume node7.jsonl --budget 600\n",
               "0 all ok or waived, 1 a probe failed or the GPU was lost, 2 usage\n"
               "or bad input, 130 interrupted"},
    ActionHelp{CalibrateAction::fit, "fit", "headroom calibrate fit FILE... [flags]",
               "Fits a calibration file to the lines that probes wrote; no GPU is needed.\n",
               "  --base NAME       calibration that says what was not probed (a built-in\n"
               "                    one)\n"
               "  --name NAME       cluster the calibration is for\n"
               "  --cluster FILE    also a cluster file: the GPUs, their memory, and what\n"
               "                    NCCL takes of it\n"
               "  -o, --output FILE calibration file; otherwise standard output\n",
               "  headroom calibrate fit node7.jsonl --base h200 -o node7.yaml\n"
               "  headroom calibrate fit one.jsonl two.jsonl --name h200 -o both.yaml\n",
               "0 ok, 1 failure, 2 usage or bad input"},
    ActionHelp{CalibrateAction::compare, "compare", "headroom calibrate compare A B [--tolerance SHARE]",
               "Compares two calibrations, files or built-in ones; no GPU is needed.\n",
               "  --tolerance SHARE figures further apart are listed (default 0.02)\n",
               "  headroom calibrate compare h200 node7.yaml\n"
               "  headroom calibrate compare node7.yaml node8.yaml --tolerance 0.05\n",
               "0 they agree, 1 figures are further apart than their spreads say,\n"
               "2 usage or bad input"},
    ActionHelp{CalibrateAction::run, "run", "headroom calibrate run --method LIST --context LIST [flags]",
               "Executes the lean schedules of methods, training steps of random weights and\n"
               "tokens, beside their prediction.\n",
               "  --method LIST     ulysses, ring, usp, upipe, fpdt; commas between several.\n"
               "                    native is not executed: it has no kernels here\n"
               "  --context LIST    tokens of one sequence over all GPUs: 128K,256K\n"
               "  --gpus N          of this machine (default 1)\n"
               "  --model NAME      as in headroom plan (default llama3-8b)\n"
               "  --layers N        so many blocks of it instead of all\n"
               "  --no-loss         blocks alone: no embedding, loss and optimizer\n"
               "  --ulysses N, --ring N, --set KEY=VALUE\n"
               "                    as in headroom plan; --set may be repeated\n"
               "  --heads-per-stage LIST, --chunk-tokens LIST\n"
               "                    the same, of upipe and of fpdt\n"
               "  --cluster NAME    the machine the prediction is for (default h200)\n"
               "  --calibration NAME\n"
               "                    its constants (default: the cluster's own)\n"
               "  --steps N         timed repetitions (default 3)\n"
               "  --warm SECONDS    of load before them (default 2)\n"
               "  --budget SECONDS  begin nothing that would end later\n"
               "  --dry-run         predictions alone; no GPU is needed\n"
               "  --compare FILE    what such a file measured beside today's predictions; no\n"
               "                    GPU is needed\n"
               "  -o, --output FILE a new file of JSON lines, one for each finished case\n",
               "  headroom calibrate run --method upipe --context 1M --gpus 8 --dry-run\n"
               "  headroom calibrate run --method ulysses,upipe --context 128K,256K --gpus 2 \\\n"
               "    --layers 1 -o runs.jsonl\n"
               "  headroom calibrate run --compare runs.jsonl\n",
               "0 ok, 1 a case failed, 2 usage, bad input or nothing but invalid\n"
               "cases, 3 a case does not fit, 130 interrupted"},
    ActionHelp{CalibrateAction::check, "check", "headroom calibrate check [flags]",
               "Checks that what the schedules compute is attention and a training step.\n",
               "  --ranks LIST      so many ranks (default: one, all GPUs, four); ranks beyond\n"
               "                    the GPUs share the first one\n"
               "  --only GLOB, --skip GLOB\n"
               "                    cases by name: 'upipe*', 'step *'; may be repeated\n"
               "  --list            names of the cases; no GPU is needed\n"
               "  --on-host         in plain arithmetic, with threads for ranks; no GPU is\n"
               "                    needed\n"
               "  -o, --output FILE a new file of JSON lines, one for each case\n",
               "  headroom calibrate check\n"
               "  headroom calibrate check --on-host --only 'upipe*'\n",
               "0 all right, 1 a case is wrong or failed, 2 usage or bad input"},
};

std::string help_of(const ActionHelp& of) {
    return std::string("Usage: ") + of.usage + "\n\n" + of.summary + "\nFlags\n" + of.flags + "\nExamples\n" +
           of.examples + "\nExit status: " + of.statuses + ".\n";
}

std::string overview() {
    std::string usages, flags;
    for (const ActionHelp& of : actions) {
        usages += std::string(usages.empty() ? "Usage: " : "       ") + of.usage + "\n";
        flags += std::string(of.name) + "\n" + of.flags + "\n";
    }
    return usages +
           "\nMeasures this machine, one JSON line for each finished probe, fits a calibration\n"
           "file to such lines, executes a method's lean schedule to compare it with its\n"
           "prediction, and checks that what the schedules compute is attention and a\n"
           "training step. `headroom calibrate ACTION --help` has examples of each.\n\n" +
           flags +
           "Examples\n"
           "  headroom calibrate probes --dry-run\n"
           "  headroom calibrate probes -o node7.jsonl\n"
           "  headroom calibrate fit node7.jsonl --base h200 -o node7.yaml\n"
           "  headroom calibrate run --method ulysses,upipe --context 128K --gpus 2\n"
           "  headroom calibrate check\n\n"
           "Exit status: 0 ok, 1 a probe, case or comparison failed, 2 usage or bad input,\n"
           "3 a case of run does not fit, 130 interrupted.\n";
}

}  // namespace

std::string calibrate_help(CalibrateAction of) {
    for (const ActionHelp& action : actions) {
        if (action.action == of) return help_of(action);
    }
    return overview();
}

}  // namespace headroom
