// The row-wise operations, templates over the instruction set. Each computes what its reference
// (ref_*.cc) does, in the same order.
#pragma once

#include "kernels/cpu/columns.h"
#include "kernels/cpu/row_ops.h"

namespace segue::kernels::cpu {

template <class Isa>
struct RowOps {
  using V = typename Isa::V;

  static void Activate(const ActivationParams& params, RowRange rows, float*) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* x = params.x.template Row<float>(row);
      float* y = params.y.template Row<float>(row);
      ForColumns<Isa>(params.x.cols, [&](auto at, int64_t i) {
        const V value = ApplyActivation<Isa>(at.Load(x + i), params.activation);
        at.Store(y + i, Round<Isa>(value, params.rounding));
      });
    }
  }

  static void SiluMul(const SiluMulParams& params, RowRange rows, float*) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* gate = params.gate.template Row<float>(row);
      const float* up = params.up.template Row<float>(row);
      float* y = params.y.template Row<float>(row);
      ForColumns<Isa>(params.y.cols, [&](auto at, int64_t i) {
        const V silu = RoundStep<Isa>(Silu<Isa>(at.Load(gate + i)), params.rounding);
        at.Store(y + i, Round<Isa>(silu * at.Load(up + i), params.rounding));
      });
    }
  }

  static void Add(const AddParams& params, RowRange rows, float*) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* a = params.a.template Row<float>(row);
      const float* b = params.b.template Row<float>(row);
      float* y = params.y.template Row<float>(row);
      ForColumns<Isa>(params.y.cols, [&](auto at, int64_t i) {
        at.Store(y + i, Round<Isa>(at.Load(a + i) + at.Load(b + i), params.rounding));
      });
    }
  }

  static void GateResidual(const GateResidualParams& params, RowRange rows, float*) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* y = params.y.template Row<float>(row);
      const float* gate = TableRow(params.gate, row);
      float* h = params.h.template Row<float>(row);
      ForColumns<Isa>(params.h.cols, [&](auto at, int64_t i) {
        const V gated = RoundStep<Isa>(at.Load(gate + i) * at.Load(y + i), params.rounding);
        at.Store(h + i, Round<Isa>(at.Load(h + i) + gated, params.rounding));
      });
    }
  }

  static void LayerNorm(const LayerNormParams& params, RowRange rows, float*) {
    const Rounding rounding = params.rounding;
    const int64_t cols = params.x.cols;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* x = params.x.template Row<float>(row);
      float* y = params.y.template Row<float>(row);
      const float total =
          SumColumns<Isa>(cols, [x](auto at, V sum, int64_t i) { return sum + at.Load(x + i); });
      const V mean = Isa::Set(total / static_cast<float>(cols));
      ForColumns<Isa>(cols, [&](auto at, int64_t i) { at.Store(y + i, at.Load(x + i) - mean); });
      const float squares = SumOfSquares<Isa>(y, cols);
      const V inverse = Isa::Set(InverseRoot(squares / static_cast<float>(cols) + params.eps));
      if (params.scale.data == nullptr) {
        ForColumns<Isa>(cols, [&](auto at, int64_t i) {
          at.Store(y + i, Round<Isa>(at.Load(y + i) * inverse, rounding));
        });
        continue;
      }
      const float* scale = TableRow(params.scale, row);
      const float* shift = TableRow(params.shift, row);
      ForColumns<Isa>(cols, [&](auto at, int64_t i) {
        const V normal = RoundStep<Isa>(at.Load(y + i) * inverse, rounding);
        const V factor = RoundStep<Isa>(Isa::Set(1.0f) + at.Load(scale + i), rounding);
        const V scaled = RoundStep<Isa>(normal * factor, rounding);
        at.Store(y + i, Round<Isa>(scaled + at.Load(shift + i), rounding));
      });
    }
  }

  static void RmsNorm(const RmsNormParams& params, RowRange rows, float* weight) {
    const int64_t cols = params.x.cols;
    Widen<Isa>(params.weight, cols, weight);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      NormRow(params.x.template Row<float>(row), params.y.template Row<float>(row), cols, weight,
              {params.eps, StepRounding(params.rounding), params.rounding});
    }
  }

  static void ChannelNorm(const ChannelNormParams& params, RowRange rows, float* gamma) {
    const Rounding rounding = params.rounding;
    const int64_t channels = params.x.cols;
    const V root = Isa::Set(static_cast<float>(__builtin_sqrt(static_cast<double>(channels))));
    Widen<Isa>(params.gamma, channels, gamma);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* x = params.x.template Row<float>(row);
      float* y = params.y.template Row<float>(row);
      const float length = __builtin_sqrtf(SumOfSquares<Isa>(x, channels));
      const V norm = Isa::Set(Scalar::Max(kSmallestNorm, length));
      ForColumns<Isa>(channels, [&](auto at, int64_t i) {
        V value = RoundStep<Isa>(at.Load(x + i) / norm, rounding);
        value = RoundStep<Isa>(value * root, rounding);
        value = value * at.Load(gamma + i);
        if (params.silu) value = Silu<Isa>(RoundStep<Isa>(value, rounding));
        at.Store(y + i, Round<Isa>(value, rounding));
      });
    }
  }

  static void QkNormRope(const QkNormRopeParams& params, RowRange rows, float* weight) {
    const int64_t dim = params.head_dim;
    const bool normed = params.weight.data != nullptr;
    if (normed) Widen<Isa>(params.weight, dim, weight);
    // The norm is a step on the way to the rotation, where there is one.
    const Rounding step = StepRounding(params.rounding);
    const NormOptions norm = {params.eps, step,
                              params.rope.cos == nullptr ? params.rounding : step};
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t angles = AngleRow(params.rope, row) * (dim / 2);
      for (int64_t first = 0; first < params.x.cols; first += dim) {
        float* head = params.x.template Row<float>(row) + first;
        if (normed) NormRow(head, head, dim, weight, norm);
        if (params.rope.cos == nullptr) continue;
        const float* cos = params.rope.cos + angles;
        const float* sin = params.rope.sin + angles;
        ForColumns<Isa>(dim, [&](auto at, int64_t i) {
          const V x = at.Load(head + i);
          const V turned = Isa::NegateFirsts(Isa::SwapPairs(x) * at.LoadTwice(sin + i / 2));
          const V value = x * at.LoadTwice(cos + i / 2) + turned;
          at.Store(head + i, Round<Isa>(value, params.rounding));
        });
      }
    }
  }

  static void RopeHalf(const RopeHalfParams& params, RowRange rows, float*) {
    const Rounding rounding = params.rounding;
    const int64_t half = params.head_dim / 2;
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const float* cos = params.rope.cos + AngleRow(params.rope, row) * half;
      const float* sin = params.rope.sin + AngleRow(params.rope, row) * half;
      for (int64_t first = 0; first < params.x.cols; first += params.head_dim) {
        float* head = params.x.template Row<float>(row) + first;
        ForColumns<Isa>(half, [&](auto at, int64_t k) {
          const V c = RoundStep<Isa>(at.Load(cos + k), rounding);
          const V s = RoundStep<Isa>(at.Load(sin + k), rounding);
          const V a = at.Load(head + k);
          const V b = at.Load(head + half + k);
          const V low = RoundStep<Isa>(a * c, rounding) - RoundStep<Isa>(b * s, rounding);
          const V high = RoundStep<Isa>(b * c, rounding) + RoundStep<Isa>(a * s, rounding);
          at.Store(head + k, Round<Isa>(low, rounding));
          at.Store(head + half + k, Round<Isa>(high, rounding));
        });
      }
    }
  }

  // x * 0 is a zero for every number and a NaN for everything else.
  static bool Finite(const FiniteParams& params) {
    for (int64_t row = 0; row < params.x.rows; ++row) {
      const float* x = params.x.template Row<float>(row);
      const float sum = SumColumns<Isa>(params.x.cols, [x](auto at, V zeros, int64_t i) {
        return Isa::Fma(at.Load(x + i), Isa::Set(0.0f), zeros);
      });
      if (sum != 0.0f) return false;
    }
    return true;
  }

 private:
  struct NormOptions {
    float eps;
    Rounding step;  // of x / rms
    Rounding result;
  };

  static void NormRow(const float* x, float* y, int64_t cols, const float* weight,
                      NormOptions options) {
    const float squares = SumOfSquares<Isa>(x, cols);
    const V inverse = Isa::Set(InverseRoot(squares / static_cast<float>(cols) + options.eps));
    ForColumns<Isa>(cols, [&](auto at, int64_t i) {
      const V value = Round<Isa>(at.Load(x + i) * inverse, options.step);
      at.Store(y + i, Round<Isa>(value * at.Load(weight + i), options.result));
    });
  }

  static float InverseRoot(float value) { return 1.0f / __builtin_sqrtf(value); }
  // RowTable's own function is not called here: the linker may keep this file's copy of it.
  static const float* TableRow(const RowTable& table, int64_t row) {
    return static_cast<const float*>(table.data) +
           (table.index == nullptr ? 0 : table.index[row] * table.stride);
  }
  static int64_t AngleRow(const RopeTable& table, int64_t row) {
    return table.index == nullptr ? row : table.index[row];
  }
};

template <class Isa>
constexpr RowCode RowCodeOf() {
  using Ops = RowOps<Isa>;
  return {.activate = Ops::Activate,
          .add = Ops::Add,
          .channel_norm = Ops::ChannelNorm,
          .gate_residual = Ops::GateResidual,
          .layer_norm = Ops::LayerNorm,
          .qk_norm_rope = Ops::QkNormRope,
          .rms_norm = Ops::RmsNorm,
          .rope_half = Ops::RopeHalf,
          .silu_mul = Ops::SiluMul,
          .finite = Ops::Finite};
}

}  // namespace segue::kernels::cpu
