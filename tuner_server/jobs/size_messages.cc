#include "tuner_server/jobs/size_messages.h"

namespace tilewright::jobs {
namespace {

template <typename Message>
log::ModelSizes Read(const Message& message) {
  log::ModelSizes sizes;
  for (const auto& [name, shape] : message.input_shapes()) {
    sizes.shapes[name].assign(shape.dims().begin(), shape.dims().end());
  }
  for (const auto& [name, range] : message.open_sizes()) {
    sizes.open[name] = {range.min(), range.max()};
  }
  for (const v1::SizePoint& point : message.specialise()) {
    sizes.points.emplace_back(point.sizes().begin(), point.sizes().end());
  }
  sizes.states.insert(message.states().begin(), message.states().end());
  sizes.known_states = message.known_states();
  return sizes;
}

template <typename Message>
void Fill(const log::ModelSizes& sizes, Message* message) {
  for (const auto& [name, dims] : sizes.shapes) {
    (*message->mutable_input_shapes())[name].mutable_dims()->Assign(dims.begin(), dims.end());
  }
  for (const auto& [name, range] : sizes.open) {
    v1::SizeRange& bounds = (*message->mutable_open_sizes())[name];
    bounds.set_min(range.min);
    bounds.set_max(range.max);
  }
  for (const module::SizePoint& point : sizes.points) {
    message->add_specialise()->mutable_sizes()->insert(point.begin(), point.end());
  }
  message->mutable_states()->insert(sizes.states.begin(), sizes.states.end());
  message->set_known_states(sizes.known_states);
}

}  // namespace

log::ModelSizes SizesOf(const v1::Job& job) { return Read(job); }
log::ModelSizes SizesOf(const v1::ModelSizes& sizes) { return Read(sizes); }

void PutSizes(const log::ModelSizes& sizes, v1::Job* job) { Fill(sizes, job); }
void PutSizes(const log::ModelSizes& sizes, v1::OpenJob* open) { Fill(sizes, open); }
void PutSizes(const log::ModelSizes& sizes, v1::ModelSizes* message) { Fill(sizes, message); }

}  // namespace tilewright::jobs
