// Joint attention of a forward's sequences: text rows, then image rows, as two segments.
#pragma once

#include <memory>
#include <vector>

#include "attention/attention.h"
#include "model/dit/batch.h"
#include "model/dit/config.h"
#include "model/dit/workspace.h"
#include "model/layers/forward_context.h"

namespace segue::model {

// Which rows of a block's attention are wanted.
enum class DitQueries : uint8_t {
  kAll,
  kImage,  // the last block's: nothing reads its text stream
};

// The attention of every block of one forward, over the fused projections in its workspace.
class DitAttention {
 public:
  virtual ~DitAttention() = default;
  // Writes the workspace's attention blocks. Errors: no back end that accepts.
  virtual Status Run(DitQueries queries, const ForwardContext& context) const = 0;
};

// One call a block on the host, for lengths that the batch fixes. Precondition: `workspace` has
// the batch's rows and is host memory.
class HostDitAttention : public DitAttention {
 public:
  HostDitAttention(const DitConfig& config, const DitBatch& batch, const DitWorkspace& workspace);
  Status Run(DitQueries queries, const ForwardContext& context) const override;

  // The name of the back end that runs, "" where none accepts.
  static std::string Backend(const DitConfig& config, const ForwardContext& context);

 private:
  attention::Options options_;
  std::vector<attention::Sequence> all_;
  std::vector<attention::Sequence> image_;
};

// Of `heads` heads of the network's size, scaled by 1 / sqrt(head_dim).
attention::Options DitAttentionOptions(const DitConfig& config, int64_t heads, DType dtype);

}  // namespace segue::model
