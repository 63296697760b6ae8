// usage: picture_digest MODEL THREADS. Prints a digest of all numbers of one request's run.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "segue/engine.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto engine =
      segue::Engine::Load({.model_directory = argv[1], .threads = std::atoi(argv[2])});
  if (!engine.ok()) {
    std::fprintf(stderr, "%s\n", engine.error().Message().c_str());
    return 1;
  }
  segue::Request request;
  request.prompt = "a cat holding a sign that says hello world";
  request.width = 80;
  request.height = 112;
  request.steps = 4;
  request.seed = 2026;
  request.keep_stages = true;
  const auto picture = (*engine)->Generate(request);
  if (!picture.ok()) {
    std::fprintf(stderr, "%s\n", picture.error().Message().c_str());
    return 1;
  }
  uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&digest](const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      digest = (digest ^ static_cast<const uint8_t*>(data)[i]) * 0x100000001b3u;
    }
  };
  for (const segue::StageTensor& stage : picture->stages) {
    add(stage.values.data(), stage.values.size() * sizeof(float));
  }
  add(picture->image.rgb.data(), picture->image.rgb.size());
  std::printf("%016llx\n", static_cast<unsigned long long>(digest));
  return 0;
}
