// SPDX-License-Identifier: Apache-2.0
// Arithmetic that computes nothing and says what it was asked for.
#pragma once

#include "calibrate/arithmetic.hpp"

namespace headroom {

class NamedArithmetic : public Arithmetic {
 public:
    void compute(Stream, const Product& what, const Addresses& at) override { say("Product", what, at); }
    void compute(Stream, const Rotary& what, const Addresses& at) override { say("Rotary", what, at); }
    void compute(Stream, const Exchange& what, const Addresses& at) override { say("Exchange", what, at); }
    void compute(Stream, const PassOn& what, const Addresses& at) override { say("PassOn", what, at); }
    void compute(Stream, const Transfer& what, const Addresses& at) override { say("Transfer", what, at); }
    void compute(Stream, const Convert& what, const Addresses& at) override { say("Convert", what, at); }
    void compute(Stream, const AddTo& what, const Addresses& at) override { say("AddTo", what, at); }
    void compute(Stream, const Merge& what, const Addresses& at) override { say("Merge", what, at); }
    void compute(Stream, const SliceExponent& what, const Addresses& at) override { say("SliceExponent", what, at); }
    void compute(Stream, const Norm& what, const Addresses& at) override { say("Norm", what, at); }
    void compute(Stream, const NormBackward& what, const Addresses& at) override { say("NormBackward", what, at); }
    void compute(Stream, const Gate& what, const Addresses& at) override { say("Gate", what, at); }
    void compute(Stream, const GateBackward& what, const Addresses& at) override { say("GateBackward", what, at); }
    void compute(Stream, const Sum& what, const Addresses& at) override { say("Sum", what, at); }
    void compute(Stream, const Embedding& what, const Addresses& at) override { say("Embedding", what, at); }
    void compute(Stream, const EmbeddingBackward& what, const Addresses& at) override {
        say("EmbeddingBackward", what, at);
    }
    void compute(Stream, const CrossEntropy& what, const Addresses& at) override { say("CrossEntropy", what, at); }
    void compute(Stream, const GatherShards& what, const Addresses& at) override { say("GatherShards", what, at); }
    void compute(Stream, const ReduceScatter& what, const Addresses& at) override { say("ReduceScatter", what, at); }
    void compute(Stream, const CopyIn& what, const Addresses& at) override { say("CopyIn", what, at); }
    void compute(Stream, const Adam& what, const Addresses& at) override { say("Adam", what, at); }
    void compute(Stream, const AttentionCall& what, const Attention&, const Addresses& at) override {
        say("AttentionCall", what, at);
    }

 private:
    /// `views` is the number of places up to the last one that is not empty.
    virtual void note(const char* name, const Addresses& at, std::size_t views) = 0;
    template <class What>
    void say(const char* name, const What& what, const Addresses& at) {
        const std::array<View, 12> views = views_of(what);
        std::size_t count = views.size();
        while (count > 0 && views[count - 1].empty()) --count;
        note(name, at, count);
    }
};

}  // namespace headroom
