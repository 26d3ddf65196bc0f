// The read channel of DRAM, which the fetch, load and compute share: one request a cycle, whose turn
// it is since longest, and not more than may be outstanding. Beats come in the order of the requests.
module vta_read_port (
    input logic clk,
    input logic reset,        // of the hardware
    input logic fresh_order,  // a stream starts: the order of the requesters is that of the reset
    // Requesters: fetch, load, compute.
    input logic fetch_request,
    input vta_rtl::request_t fetch_asked,
    output logic fetch_granted,
    output logic fetch_beat,
    input logic load_request,
    input vta_rtl::request_t load_asked,
    output logic load_granted,
    output logic load_beat,
    input logic compute_request,
    input vta_rtl::request_t compute_asked,
    output logic compute_granted,
    output logic compute_beat,
    output logic quiet,  // no beat is on its way
    // DRAM.
    output logic request,
    output vta_rtl::request_t asked,
    input logic ready,
    input logic beat
);
  typedef enum logic [1:0] {
    FETCH,
    LOAD,
    COMPUTE
  } requester_t;
  localparam int unsigned COUNT_BITS = $clog2(vta_rtl::OUTSTANDING + 1);

  // Of each pair: the first has waited longer.
  logic load_compute, load_fetch, compute_fetch;
  logic accepts, takes_load, takes_compute, takes_fetch;
  logic [COUNT_BITS-1:0] outstanding;
  assign accepts = outstanding != COUNT_BITS'(vta_rtl::OUTSTANDING);
  assign takes_load = load_request && !(compute_request && !load_compute) &&
                      !(fetch_request && !load_fetch);
  assign takes_compute = compute_request && !(load_request && load_compute) &&
                         !(fetch_request && !compute_fetch);
  assign takes_fetch = fetch_request && !takes_load && !takes_compute;

  requester_t chosen;
  always_comb begin
    chosen = FETCH;
    asked  = fetch_asked;
    if (takes_load) begin
      chosen = LOAD;
      asked  = load_asked;
    end else if (takes_compute) begin
      chosen = COMPUTE;
      asked  = compute_asked;
    end
  end
  assign request = accepts && (fetch_request || load_request || compute_request);
  assign load_granted = request && ready && takes_load;
  assign compute_granted = request && ready && takes_compute;
  assign fetch_granted = request && ready && takes_fetch;

  always_ff @(posedge clk) begin
    if (reset || fresh_order) begin
      load_compute  <= 1'b1;
      load_fetch    <= 1'b1;
      compute_fetch <= 1'b1;
    end else if (load_granted) begin
      load_compute <= 1'b0;
      load_fetch   <= 1'b0;
    end else if (compute_granted) begin
      load_compute  <= 1'b1;
      compute_fetch <= 1'b0;
    end else if (fetch_granted) begin
      load_fetch    <= 1'b1;
      compute_fetch <= 1'b1;
    end
  end

  // Whose beats come, and how many.
  logic ends, full, valid;
  requester_t owner;
  vta_rtl::beats_t beats, come;
  vta_fifo #(
      .WIDTH(2 + vta_rtl::BEATS_BITS),
      .DEPTH(vta_rtl::OUTSTANDING)
  ) requests (
      .clk,
      .reset,
      .push(request && ready),
      .word({chosen, asked.beats}),
      .full,
      .pop (ends),
      .valid,
      .head({owner, beats})
  );
  assign ends = beat && valid && come + 1'b1 == beats;
  assign quiet = outstanding == 0;
  assign fetch_beat = beat && owner == FETCH;
  assign load_beat = beat && owner == LOAD;
  assign compute_beat = beat && owner == COMPUTE;

  always_ff @(posedge clk) begin
    if (reset) begin
      outstanding <= '0;
      come <= '0;
    end else begin
      outstanding <= outstanding + COUNT_BITS'(request && ready && !full) - COUNT_BITS'(ends);
      if (beat) come <= ends ? '0 : come + 1'b1;
    end
  end
endmodule
