#include "model/layers/placement.h"

namespace segue::model {

Result<Placement> PlacementOf(const ForwardContext& context) {
  Placement placement(context.communicator->size());
  placement.device = context.kernels.stream.device();
  if (placement.device == DeviceKind::kCuda) {
    SEGUE_ASSIGN_OR_RETURN(placement.gpu, attention::CurrentGpu());
  }
  return placement;
}

}  // namespace segue::model
