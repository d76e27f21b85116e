// SPDX-License-Identifier: Apache-2.0
#include "calibrate/step_reference.hpp"

#include <algorithm>
#include <random>

#include "models/weights.hpp"

namespace headroom {
namespace {

using Values = ReferenceValues;
using Weight = std::span<const double>;

Workload workload_of(const TransformerShape& model) {
    Workload work;
    work.model = model;
    return work;
}

Weight part(const Values& flat, std::int64_t offset, std::int64_t size) {
    return Weight(flat).subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

/// Puts `values` at `offset` of a flat gradient.
void put(Values& flat, std::int64_t offset, const Values& values) {
    std::copy(values.begin(), values.end(), flat.begin() + offset);
}

void add(Values& sum, const Values& term) {
    std::transform(sum.begin(), sum.end(), term.begin(), sum.begin(), std::plus<>());
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// The weights of one block by name.
struct BlockPart {
    BlockWeights at;
    const Values& flat;
    std::int64_t hidden, wide, narrow, ffn;

    BlockPart(const TransformerShape& model, const Values& of)
        : at(block_weights_of(workload_of(model))),
          flat(of),
          hidden(model.hidden),
          wide(model.query_width()),
          narrow(model.kv_width()),
          ffn(model.ffn) {}
    Weight input_norm() const { return part(flat, at.input_norm, hidden); }
    Weight query() const { return part(flat, at.query, wide * hidden); }
    Weight key() const { return part(flat, at.key, narrow * hidden); }
    Weight value() const { return part(flat, at.value, narrow * hidden); }
    Weight output() const { return part(flat, at.output, hidden * wide); }
    Weight query_norm() const { return part(flat, at.query_norm, at.key_norm - at.query_norm); }
    Weight key_norm() const { return part(flat, at.key_norm, at.gate - at.key_norm); }
    Weight residual_norm() const { return part(flat, at.residual_norm, hidden); }
    Weight gate() const { return part(flat, at.gate, ffn * hidden); }
    Weight up() const { return part(flat, at.up, ffn * hidden); }
    Weight down() const { return part(flat, at.down, hidden * ffn); }
};

/// A block over `rows` rows, forward with all it computes kept, then backward.
class BlockPass {
 public:
    BlockPass(const TransformerShape& model, const Values& flat, const Values& input)
        : model_(model),
          weights_(model, flat),
          rows_(static_cast<std::int64_t>(input.size()) / model.hidden),
          input_(input) {
        attend();
        residual_ = times_transposed(attended_, weights_.output(), rows_, weights_.hidden, weights_.wide);
        add(residual_, input_);
        run_mlp();
    }

    const Values& output() const { return output_; }

    /// From the gradient of the output; writes those of the weights to `flat`. Returns that of the input.
    Values backward(const Values& gradient, Values& flat) const {
        Values residual_gradient = mlp_backward(gradient, flat);
        add(residual_gradient, gradient);
        Values input_gradient = attention_backward(residual_gradient, flat);
        add(input_gradient, residual_gradient);
        return input_gradient;
    }

 private:
    void attend() {
        normed_ = rms_norm(input_, weights_.input_norm());
        raw_query_ = times_transposed(normed_, weights_.query(), rows_, weights_.wide, weights_.hidden);
        raw_key_ = times_transposed(normed_, weights_.key(), rows_, weights_.narrow, weights_.hidden);
        const bool norms = model_.qk_norm != QkNorm::none;
        query_ = norms ? rms_norm(raw_query_, weights_.query_norm()) : raw_query_;
        key_ = norms ? rms_norm(raw_key_, weights_.key_norm()) : raw_key_;
        value_ = times_transposed(normed_, weights_.value(), rows_, weights_.narrow, weights_.hidden);
        turn_heads(query_, rows_, weights_.wide, model_.head_dim, 1);
        turn_heads(key_, rows_, weights_.narrow, model_.head_dim, 1);
        attended_ = CausalAttention{model_, rows_, query_, key_, value_}.output();
    }

    void run_mlp() {
        normed_residual_ = rms_norm(residual_, weights_.residual_norm());
        gate_ = times_transposed(normed_residual_, weights_.gate(), rows_, weights_.ffn, weights_.hidden);
        up_ = times_transposed(normed_residual_, weights_.up(), rows_, weights_.ffn, weights_.hidden);
        inner_.resize(gate_.size());
        for (std::size_t i = 0; i < inner_.size(); ++i) inner_[i] = gate_[i] * sigmoid(gate_[i]) * up_[i];
        output_ = times_transposed(inner_, weights_.down(), rows_, weights_.hidden, weights_.ffn);
        add(output_, residual_);
    }

    /// Gradient of the residual through norm and MLP.
    Values mlp_backward(const Values& gradient, Values& flat) const {
        const std::int64_t hidden = weights_.hidden;
        const std::int64_t ffn = weights_.ffn;
        put(flat, weights_.at.down, transposed_times(gradient, inner_, hidden, ffn, rows_));
        Values inner_gradient(inner_.size());
        add_product(inner_gradient, gradient, weights_.down(), rows_, ffn, hidden);
        Values gate_gradient(inner_.size());
        Values up_gradient(inner_.size());
        for (std::size_t i = 0; i < inner_.size(); ++i) {
            const double share = sigmoid(gate_[i]);
            gate_gradient[i] = inner_gradient[i] * up_[i] * (share + gate_[i] * share * (1 - share));
            up_gradient[i] = inner_gradient[i] * gate_[i] * share;
        }
        put(flat, weights_.at.gate, transposed_times(gate_gradient, normed_residual_, ffn, hidden, rows_));
        put(flat, weights_.at.up, transposed_times(up_gradient, normed_residual_, ffn, hidden, rows_));
        Values normed_gradient(residual_.size());
        add_product(normed_gradient, gate_gradient, weights_.gate(), rows_, hidden, ffn);
        add_product(normed_gradient, up_gradient, weights_.up(), rows_, hidden, ffn);
        const NormGradients through = rms_norm_gradients(residual_, weights_.residual_norm(), normed_gradient);
        put(flat, weights_.at.residual_norm, through.weight);
        return through.in;
    }

    /// Gradient of the input through norm and attention.
    Values attention_backward(const Values& gradient, Values& flat) const {
        const std::int64_t hidden = weights_.hidden;
        const std::int64_t wide = weights_.wide;
        const std::int64_t narrow = weights_.narrow;
        put(flat, weights_.at.output, transposed_times(gradient, attended_, hidden, wide, rows_));
        Values attended_gradient(attended_.size());
        add_product(attended_gradient, gradient, weights_.output(), rows_, wide, hidden);
        CausalGradients of =
            CausalAttention{model_, rows_, query_, key_, value_}.gradients(attended_, attended_gradient);
        turn_heads(of.query, rows_, wide, model_.head_dim, -1);
        turn_heads(of.key, rows_, narrow, model_.head_dim, -1);
        qk_norm_backward(of, flat);
        put(flat, weights_.at.query, transposed_times(of.query, normed_, wide, hidden, rows_));
        put(flat, weights_.at.key, transposed_times(of.key, normed_, narrow, hidden, rows_));
        put(flat, weights_.at.value, transposed_times(of.value, normed_, narrow, hidden, rows_));
        Values normed_gradient(input_.size());
        add_product(normed_gradient, of.query, weights_.query(), rows_, hidden, wide);
        add_product(normed_gradient, of.key, weights_.key(), rows_, hidden, narrow);
        add_product(normed_gradient, of.value, weights_.value(), rows_, hidden, narrow);
        const NormGradients through = rms_norm_gradients(input_, weights_.input_norm(), normed_gradient);
        put(flat, weights_.at.input_norm, through.weight);
        return through.in;
    }

    /// Gradients of query and key become those before their norms.
    void qk_norm_backward(CausalGradients& of, Values& flat) const {
        if (model_.qk_norm == QkNorm::none) return;
        const auto through = [&](const Values& raw, Weight weight, std::int64_t place, Values& gradient) {
            NormGradients both = rms_norm_gradients(raw, weight, gradient);
            put(flat, place, both.weight);
            gradient = std::move(both.in);
        };
        through(raw_query_, weights_.query_norm(), weights_.at.query_norm, of.query);
        through(raw_key_, weights_.key_norm(), weights_.at.key_norm, of.key);
    }

    const TransformerShape& model_;
    BlockPart weights_;
    std::int64_t rows_;
    Values input_, normed_, raw_query_, raw_key_, query_, key_, value_, attended_, residual_, normed_residual_, gate_,
        up_, inner_, output_;
};

/// The whole model, forward with all it computes kept, then backward.
class ModelPass {
 public:
    ModelPass(const TransformerShape& model, const StepTokens& text, const ModelWeights& weights)
        : model_(model),
          text_(text),
          weights_(weights),
          at_(root_weights_of(workload_of(model))),
          rows_(static_cast<std::int64_t>(text.tokens.size())) {
        blocks_.reserve(weights.blocks.size());
        Values hidden = embed();
        for (const Values& flat : weights.blocks) hidden = blocks_.emplace_back(model, flat, hidden).output();
        last_ = hidden;
        normed_ = rms_norm(last_, final_norm());
        probabilities_ = times_transposed(normed_, head(), rows_, model.vocabulary, model.hidden);
        normalise();
    }

    double loss() const { return loss_; }

    ModelWeights backward() const {
        ModelWeights gradients = weights_like(model_);
        const Values logit_gradient = gradient_of_logits();
        // Where the head is the embedding, that adds its own part below.
        put(gradients.root, at_.head,
            transposed_times(logit_gradient, normed_, model_.vocabulary, model_.hidden, rows_));
        Values normed_gradient(normed_.size());
        add_product(normed_gradient, logit_gradient, head(), rows_, model_.hidden, model_.vocabulary);
        const NormGradients through = rms_norm_gradients(last_, final_norm(), normed_gradient);
        put(gradients.root, at_.final_norm, through.weight);
        Values gradient = through.in;
        for (std::size_t i = blocks_.size(); i-- > 0;) gradient = blocks_[i].backward(gradient, gradients.blocks[i]);
        add_embedding_gradient(gradient, gradients.root);
        return gradients;
    }

 private:
    Weight final_norm() const { return part(weights_.root, at_.final_norm, model_.hidden); }
    Weight head() const { return part(weights_.root, at_.head, model_.vocabulary * model_.hidden); }

    Values embed() const {
        Values hidden;
        for (const std::int64_t token : text_.tokens) {
            const Weight row = part(weights_.root, at_.embedding + token * model_.hidden, model_.hidden);
            hidden.insert(hidden.end(), row.begin(), row.end());
        }
        return hidden;
    }

    /// Logits become probabilities; the mean loss with them.
    void normalise() {
        for (std::int64_t row = 0; row < rows_; ++row) {
            double* values = &probabilities_[static_cast<std::size_t>(row * model_.vocabulary)];
            double total = 0;
            for (std::int64_t i = 0; i < model_.vocabulary; ++i) total += values[i] = std::exp(values[i]);
            for (std::int64_t i = 0; i < model_.vocabulary; ++i) values[i] /= total;
            loss_ -= std::log(values[text_.labels[static_cast<std::size_t>(row)]]) / static_cast<double>(rows_);
        }
    }

    Values gradient_of_logits() const {
        Values gradient = probabilities_;
        for (std::int64_t row = 0; row < rows_; ++row) {
            gradient[static_cast<std::size_t>(row * model_.vocabulary + text_.labels[static_cast<std::size_t>(row)])] -=
                1;
        }
        for (double& value : gradient) value /= static_cast<double>(rows_);
        return gradient;
    }

    void add_embedding_gradient(const Values& gradient, Values& root) const {
        for (std::int64_t row = 0; row < rows_; ++row) {
            const std::int64_t token = text_.tokens[static_cast<std::size_t>(row)];
            for (std::int64_t i = 0; i < model_.hidden; ++i) {
                root[static_cast<std::size_t>(at_.embedding + token * model_.hidden + i)] +=
                    gradient[static_cast<std::size_t>(row * model_.hidden + i)];
            }
        }
    }

    const TransformerShape& model_;
    const StepTokens& text_;
    const ModelWeights& weights_;
    RootWeights at_;
    std::int64_t rows_;
    std::vector<BlockPass> blocks_;
    Values last_, normed_, probabilities_;
    double loss_ = 0;
};

StepTokens random_tokens(std::int64_t vocabulary, std::int64_t context) {
    std::mt19937 random(7);
    const auto next = [&] { return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocabulary)); };
    StepTokens text;
    for (std::int64_t i = 0, token = next(); i < context; ++i) {
        text.tokens.push_back(token);
        text.labels.push_back(token = next());
    }
    return text;
}

ModelWeights random_weights(const TransformerShape& model) {
    ModelWeights weights = weights_like(model);
    std::uint32_t seed = 10;
    for (const WeightKind& kind : weight_kinds(model)) {
        for (const std::span<double> to : kind.in(weights)) {
            const std::vector<float> from = kind.inputs == 0
                                                ? random_norm(kind.size, ++seed)
                                                : random_values(kind.size, projection_spread(kind.inputs), ++seed);
            std::copy(from.begin(), from.end(), to.begin());
        }
    }
    return weights;
}

template <class Span, class Weights>
std::vector<Span> slices(const WeightKind& kind, Weights& weights) {
    std::vector<Span> all;
    const auto take = [&](auto& flat) {
        all.push_back(Span(flat).subspan(static_cast<std::size_t>(kind.offset), static_cast<std::size_t>(kind.size)));
    };
    if (!kind.of_block) take(weights.root);
    if (kind.of_block) std::for_each(weights.blocks.begin(), weights.blocks.end(), take);
    return all;
}

}  // namespace

std::vector<std::span<double>> WeightKind::in(ModelWeights& weights) const {
    return slices<std::span<double>>(*this, weights);
}

std::vector<std::span<const double>> WeightKind::in(const ModelWeights& weights) const {
    return slices<std::span<const double>>(*this, weights);
}

ModelWeights weights_like(const TransformerShape& model) {
    const Workload work = workload_of(model);
    const Values block(static_cast<std::size_t>(block_weights_of(work).size));
    return {std::vector<Values>(static_cast<std::size_t>(model.layers), block),
            Values(static_cast<std::size_t>(root_weights_of(work).size))};
}

std::vector<WeightKind> weight_kinds(const TransformerShape& model) {
    const Workload work = workload_of(model);
    const BlockWeights block = block_weights_of(work);
    const RootWeights root = root_weights_of(work);
    const std::int64_t hidden = model.hidden;
    const std::int64_t table = model.vocabulary * hidden;
    const bool tied = model.tied_embeddings;
    std::vector<WeightKind> kinds{{"input norm", true, block.input_norm, hidden, 0},
                                  {"wq", true, block.query, model.query_width() * hidden, hidden},
                                  {"wk", true, block.key, model.kv_width() * hidden, hidden},
                                  {"wv", true, block.value, model.kv_width() * hidden, hidden},
                                  {"wo", true, block.output, hidden * model.query_width(), model.query_width()},
                                  {"residual norm", true, block.residual_norm, hidden, 0},
                                  {"gate", true, block.gate, model.ffn * hidden, hidden},
                                  {"up", true, block.up, model.ffn * hidden, hidden},
                                  {"down", true, block.down, hidden * model.ffn, model.ffn},
                                  {"embedding", false, root.embedding, table, tied ? hidden : 1},
                                  {"final norm", false, root.final_norm, hidden, 0}};
    if (!tied) kinds.push_back({"head", false, root.head, table, hidden});
    if (model.qk_norm == QkNorm::none) return kinds;
    kinds.push_back({"query norm", true, block.query_norm, model.qk_norm_width(model.heads), 0});
    kinds.push_back({"key norm", true, block.key_norm, model.qk_norm_width(model.kv_heads), 0});
    return kinds;
}

double step_loss(const TransformerShape& model, const StepTokens& text, const ModelWeights& weights) {
    return ModelPass(model, text, weights).loss();
}

ModelWeights step_gradients(const TransformerShape& model, const StepTokens& text, const ModelWeights& weights) {
    return ModelPass(model, text, weights).backward();
}

AdamResult first_adam_step(double parameter, double gradient) {
    // The shares of the first gradient in the moments cancel where they are corrected for their zeros.
    const double change = gradient / (std::abs(gradient) + adam_settings.epsilon) + adam_settings.decay * parameter;
    return {parameter - adam_settings.rate * change, (1 - adam_settings.first_beta) * gradient,
            (1 - adam_settings.second_beta) * gradient * gradient};
}

StepReference::StepReference(const TransformerShape& shape, std::int64_t context)
    : model(shape), text(random_tokens(shape.vocabulary, context)), weights(random_weights(shape)) {
    const ModelPass pass(model, text, weights);
    loss = pass.loss();
    gradients = pass.backward();
}

}  // namespace headroom
