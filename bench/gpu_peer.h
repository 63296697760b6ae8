// A peer on the same GPU that is a Python program: bench/gpu_peer.py, which documents the protocol.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/gpu_measure.h"
#include "bench/peer_process.h"
#include "bench/suite.h"
#include "segue/status.h"

namespace segue::bench {

// It holds its memory until it is destroyed, and works only during Run.
class GpuPeer {
 public:
  // Starts `python script arguments...` and waits until it is warm: loaded, compiled, recorded.
  // Errors: it does not start or takes too long; what it says is wrong.
  static Result<std::unique_ptr<GpuPeer>> Start(const std::vector<std::string>& command);

  // Back to back for at least so many seconds; microseconds of each call.
  Result<std::vector<double>> Run(double seconds);

  const std::string& name() const { return name_; }        // "diffusers"
  const std::string& version() const { return version_; }  // how it runs included
  // For people: what getting ready took.
  const std::string& note() const { return note_; }

 private:
  GpuPeer() = default;

  std::unique_ptr<PeerProcess> process_;
  std::string name_;
  std::string version_;
  std::string note_;
};

// Measures beside the peer that --peer-python and these arguments of bench/gpu_peer.py give, whose
// name goes into the row; it is gone afterwards. Where there is none the row says why in its note
// and ours is measured alone. Errors: those of CUDA; a peer that fails once it was ready.
Result<GpuComparison> MeasureBesidePython(const GpuProgram& ours,
                                          const std::vector<std::string>& arguments,
                                          const SuiteOptions& options, const GpuStream& stream,
                                          Row* row);

}  // namespace segue::bench
