// The accelerator: control registers, fetch, the modules load, compute and store, the tokens between
// them, and a port to DRAM with a channel for reads and one for writes. One clock.
module vta_core #(
    parameter int unsigned CLOCK_KHZ = 0  // of `clk`: who puts the core onto a board knows it
) (
    input logic clk,
    input logic reset,
    // Control registers.
    input logic register_write,
    input logic [7:0] register_address,
    input logic [31:0] register_written,
    output logic [31:0] register_value,
    // Reads: a request is taken if `read_ready`; its beats come later, in the order of the requests,
    // and are always taken.
    output logic read_request,
    output logic [vta_rtl::ADDRESS_BITS-1:0] read_address,  // a multiple of the bytes of a beat
    output logic [vta_rtl::BEATS_BITS-1:0] read_beats,
    input logic read_ready,
    input logic read_beat,
    input logic [vta_rtl::BEAT_BITS-1:0] read_data,
    // Writes: a beat is taken if `write_ready`; a last one is answered when all before it are there.
    output logic write_beat,
    output logic [vta_rtl::ADDRESS_BITS-1:0] write_address,
    output logic [vta_rtl::BEAT_BITS-1:0] write_data,
    output logic write_last,
    input logic write_ready,
    input logic write_response
);
  localparam int unsigned BYTE_BITS = $clog2(vta_rtl::BEAT_BYTES);

  logic start, stop, clear, finished, illegal, reads_quiet, writes_quiet;
  vta_rtl::beat_address_t stream;
  logic [31:0] length;
  logic load_idle, load_busy, compute_waiting, compute_busy, store_idle, store_busy, fetch_empty;
  // Tokens: load and compute, compute and store, in both directions.
  logic down_give, down_take, down_available, down_room;
  logic up_give, up_take, up_available, up_room;
  logic out_give, out_take, out_available, out_room;
  logic back_give, back_take, back_available, back_room;
  assign clear = reset || stop || start;

  vta_control #(
      .CLOCK_KHZ(CLOCK_KHZ)
  ) control (
      .clk,
      .reset,
      .write(register_write),
      .address(register_address),
      .written(register_written),
      .value(register_value),
      .start,
      .stop,
      .stream,
      .length,
      .finished,
      .illegal,
      .work_left(!load_idle || !store_idle || !fetch_empty),
      .left_after(compute_waiting || down_available || up_available || out_available || back_available),
      .dram_quiet(reads_quiet && writes_quiet),
      .read_beat,
      .write_beat(write_beat && write_ready),
      .load_busy,
      .compute_busy,
      .store_busy
  );

  vta_tokens load_to_compute (
      .clk,
      .reset(clear),
      .give(down_give),
      .take(down_take),
      .available(down_available),
      .room(down_room)
  );
  vta_tokens compute_to_load (
      .clk,
      .reset(clear),
      .give(up_give),
      .take(up_take),
      .available(up_available),
      .room(up_room)
  );
  vta_tokens compute_to_store (
      .clk,
      .reset(clear),
      .give(out_give),
      .take(out_take),
      .available(out_available),
      .room(out_room)
  );
  vta_tokens store_to_compute (
      .clk,
      .reset(clear),
      .give(back_give),
      .take(back_take),
      .available(back_available),
      .room(back_room)
  );

  logic fetch_request, fetch_granted, fetch_beat, load_request, load_granted, load_beat;
  logic compute_request, compute_granted, compute_beat;
  vta_rtl::request_t fetch_asked, load_asked, compute_asked, asked;
  vta_read_port read_port (
      .clk,
      .reset,
      .fresh_order(start),
      .fetch_request,
      .fetch_asked,
      .fetch_granted,
      .fetch_beat,
      .load_request,
      .load_asked,
      .load_granted,
      .load_beat,
      .compute_request,
      .compute_asked,
      .compute_granted,
      .compute_beat,
      .quiet(reads_quiet),
      .request(read_request),
      .asked,
      .ready(read_ready),
      .beat(read_beat)
  );
  assign read_address = {asked.address, BYTE_BITS'(0)};
  assign read_beats = asked.beats;

  logic [vta_rtl::INSTRUCTION_BITS-1:0] instruction;
  logic to_load, to_compute, to_store, load_full, compute_full, store_full;
  vta_fetch fetch (
      .clk,
      .reset(reset || stop),
      .start,
      .stream,
      .length,
      .request(fetch_request),
      .asked(fetch_asked),
      .granted(fetch_granted),
      .beat(fetch_beat),
      .data(read_data),
      .load_full,
      .compute_full,
      .store_full,
      .to_load,
      .to_compute,
      .to_store,
      .instruction,
      .illegal,
      .empty(fetch_empty)
  );

  logic operand_read;
  logic [vta_isa::INP_INDEX_BITS-1:0] inp_index;
  logic [vta_isa::WGT_INDEX_BITS-1:0] wgt_index;
  logic [8*vta_isa::INP_BYTES-1:0] inp;
  logic [8*vta_isa::WGT_BYTES-1:0] wgt;
  vta_load load (
      .clk,
      .reset(clear),
      .push(to_load),
      .instruction,
      .full(load_full),
      .idle(load_idle),
      .busy(load_busy),
      .next_available(up_available),
      .next_room(down_room),
      .take_next(up_take),
      .give_next(down_give),
      .request(load_request),
      .asked(load_asked),
      .granted(load_granted),
      .beat(load_beat),
      .data(read_data),
      .read(operand_read),
      .inp_index,
      .wgt_index,
      .inp,
      .wgt
  );

  logic out_read;
  logic [vta_isa::ACC_INDEX_BITS-1:0] out_index;
  logic [8*vta_isa::OUT_BYTES-1:0] out;
  vta_compute compute (
      .clk,
      .reset(clear),
      .push(to_compute),
      .instruction,
      .full(compute_full),
      .waiting(compute_waiting),
      .busy(compute_busy),
      .finished,
      .prev_available(down_available),
      .prev_room(up_room),
      .take_prev(down_take),
      .give_prev(up_give),
      .next_available(back_available),
      .next_room(out_room),
      .take_next(back_take),
      .give_next(out_give),
      .request(compute_request),
      .asked(compute_asked),
      .granted(compute_granted),
      .beat(compute_beat),
      .data(read_data),
      .operand_read,
      .inp_index,
      .wgt_index,
      .inp,
      .wgt,
      .out_read,
      .out_index,
      .out
  );

  vta_rtl::beat_address_t store_address;
  vta_store store (
      .clk,
      .reset(clear),
      .hardware_reset(reset),
      .push(to_store),
      .instruction,
      .full(store_full),
      .idle(store_idle),
      .busy(store_busy),
      .prev_available(out_available),
      .prev_room(back_room),
      .take_prev(out_take),
      .give_prev(back_give),
      .read(out_read),
      .index(out_index),
      .out,
      .write(write_beat),
      .address(store_address),
      .data(write_data),
      .write_last,
      .ready(write_ready),
      .response(write_response),
      .quiet(writes_quiet)
  );
  assign write_address = {store_address, BYTE_BITS'(0)};
endmodule
