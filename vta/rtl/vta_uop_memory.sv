// The memory of micro-ops. A beat has several of them, and they may begin at any place of it: each
// place of a beat is a bank of its own. A micro-op is read in a cycle and seen in the next.
module vta_uop_memory #(
    // Micro-ops in a beat.
    parameter int unsigned LANES = vta_rtl::BEAT_BYTES / vta_isa::UOP_BYTES,
    parameter int unsigned LANE_BITS = $clog2(LANES)
) (
    input logic clk,
    // `count` micro-ops from `write_element` on, which lie in the beat from `first` on.
    input logic write,
    input logic [vta_isa::UOP_INDEX_BITS-1:0] write_element,
    input logic [LANE_BITS-1:0] first,
    input logic [LANE_BITS:0] count,
    input vta_rtl::beat_t data,
    input logic read,
    input logic [vta_isa::UOP_INDEX_BITS-1:0] read_element,
    output vta_isa::uop_t uop
);
  localparam int unsigned INDEX_BITS = vta_isa::UOP_INDEX_BITS;
  localparam int unsigned UOP_BITS = 8 * vta_isa::UOP_BYTES;

  logic [LANES*UOP_BITS-1:0] rows;
  logic [LANE_BITS-1:0] read_lane;

  always_ff @(posedge clk) if (read) read_lane <= read_element[LANE_BITS-1:0];

  for (genvar bank = 0; bank < LANES; bank++) begin : g_bank
    // The micro-op of this bank is the offset-th of those written.
    logic [LANE_BITS-1:0] offset, lane;
    // verilator lint_off UNUSEDSIGNAL
    logic [INDEX_BITS-1:0] element;
    // verilator lint_on UNUSEDSIGNAL
    assign offset = LANE_BITS'(bank) - write_element[LANE_BITS-1:0];
    assign lane = first + offset;
    assign element = write_element + INDEX_BITS'(offset);
    vta_memory #(
        .ELEMENTS(vta_isa::UOP_ELEMENTS / LANES),
        .BANK_BITS(UOP_BITS)
    ) memory (
        .clk,
        .write(write && {1'b0, offset} < count),
        .write_index(element[INDEX_BITS-1:LANE_BITS]),
        .write_data(data[{lane, 5'b0}+:UOP_BITS]),
        .read,
        .read_index(read_element[INDEX_BITS-1:LANE_BITS]),
        .read_data(rows[bank*UOP_BITS+:UOP_BITS])
    );
  end

  assign uop = rows[{read_lane, 5'b0}+:UOP_BITS];
endmodule
