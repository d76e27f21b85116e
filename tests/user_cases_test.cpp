// SPDX-License-Identifier: Apache-2.0
// Claim: no reported case is lost. Each that concerns memory, validity, configs or units has a test, or stands here
// with what is missing; a case with a test may stand here too, for the part that is outside.
#include "tests/user_cases.hpp"

#include <algorithm>
#include <set>

namespace headroom {
namespace {

const char* const cases[]{
    "C01",  "C04",  "C05",  "C06",  "C08",  "C10",  "C11",  "C12",  "C13",  "C14",  "C15",  "C16",  "C18",  "C20",
    "C22",  "C23",  "C24",  "C27",  "C29",  "C30",  "C31",  "C32",  "C34",  "C36",  "C37",  "C38",  "C39",  "C40",
    "C44",  "C47",  "C48",  "C50",  "C51",  "C53",  "C54",  "C56",  "C57",  "C58",  "C59",  "C60",  "C62",  "C63",
    "C64",  "C65",  "C66",  "C67",  "C68",  "C69",  "C70",  "C71",  "C72",  "C74",  "C76",  "C77",  "C82",  "C83",
    "C85",  "C86",  "C89",  "C91",  "C93",  "C94",  "C95",  "C96",  "C98",  "C99",  "C101", "C103", "C105", "C107",
    "C108", "C109", "C111", "C112", "C113", "C114", "C117", "C118", "C120", "C121", "C122"};

struct NotYetMet {
    const char* id;
    const char* reason;
};
const NotYetMet not_yet_met[]{
    {"C05",
     "5 GiB too low at every length (29 % at 8K, 5 % at 256K), so the longest context is 322K instead of 256K to "
     "290K: a fixed part of DeepSpeed's step that we do not know"},
    {"C06",
     "35.5 GiB allocated at 64K where 50.5 are reported, and 128K is not refused: the difference is 15.0 GiB at "
     "every length, 16 bytes a parameter over four GPUs, as if nothing had been offloaded"},
    {"C10", "the tokens a second are of FP8 and compiled code, which is not modelled"},
    {"C11", "selective checkpointing and torch.compile are not modelled"},
    {"C12", "tensor and pipeline parallelism are not modelled"},
    {"C13", "24 % to spare where less than 10 % is expected; at 128K the ring is predicted 51 % too fast"},
    {"C14", "no command times attention alone"},
    {"C15", "no command times attention alone, nor says what bounds it"},
    {"C16", "LoRA is not modelled: every parameter has gradients and optimizer state"},
    {"C18", "tensor parallelism and FP8 are not modelled"},
    {"C20", "tensor parallelism is not modelled"},
    {"C23", "tensor parallelism and selective checkpointing are not modelled"},
    {"C27", "unsloth-zoo's own loss (10 bytes an element and 2 of the table) is not an implementation we know"},
    {"C29", "Gemma-3 is refused for its windows, so its longest context is not predicted; LoRA is not modelled"},
    {"C30", "mixture of experts and Flux are not modelled"},
    {"C32", "the default chunk is Liger's, which may be below 1,024"},
    {"C39", "uneven heads are rejected; there is no option to accept them"},
    {"C48", "windows cannot be forced: what is refused is never costed"},
    {"C50", "tensor parallelism is not modelled"},
    {"C51", "latent attention is refused, so neither its expanded nor its latent form is costed"},
    {"C53", "there is no dense-mask setting to warn of"},
    {"C85", "a second set of heads is not read: the model is refused before its Ulysses rule matters"},
    {"C107",
     "on eight GPUs 4.7 GiB lie outside the allocator, more than the 1 to 3 GiB of the report: NCCL's buffers for "
     "seven peers"},
    {"C108",
     "26.5 hidden-size copies a block instead of 28: the report counts five FFN-wide tensors in Hugging Face's eager "
     "MLP, its code saves four"},
    {"C113", "latent attention and Flux are refused, so their FLOPs are not counted"},
    {"C114", "windowed models are refused, so their FLOPs are not counted"},
};

}  // namespace

TEST_CASE("every user case has a test, or a reason why not") {
    const auto& tested = tested_user_cases();
    std::set<std::string> missing;
    for (const NotYetMet& entry : not_yet_met) {
        CAPTURE(entry.id);
        CHECK(missing.insert(entry.id).second);
        CHECK(std::string(entry.reason).size() > 15);
        CHECK(std::find(std::begin(cases), std::end(cases), std::string(entry.id)) != std::end(cases));
        const bool partly = std::find(tested.begin(), tested.end(), entry.id) != tested.end();
        MESSAGE(entry.id, partly ? " in part: " : ": ", entry.reason);
    }
    for (const char* id : cases) {
        CAPTURE(id);
        const bool met = std::find(tested.begin(), tested.end(), id) != tested.end();
        CHECK((met || missing.contains(id)));
    }
    for (const std::string& id : tested) {
        CAPTURE(id);
        CHECK(std::find(std::begin(cases), std::end(cases), id) != std::end(cases));
    }
    CHECK(std::set<std::string>(tested.begin(), tested.end()).size() == tested.size());
}

}  // namespace headroom
