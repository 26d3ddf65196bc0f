// `tilewright certs`: a private certificate authority and the identities that it signs. Local
// files only: whoever holds the authority's folder decides who belongs to the fleet.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct CertsOptions {
  std::string authority;             // folder of the authority
  std::string kind;                  // tracker, tuner, agent or client
  std::string name;                  // of the authority, or of the one whom a certificate is for
  std::vector<std::string> hosts;    // what clients dial
  std::string identity;              // folder of the identity; empty: AUTHORITY/issued/NAME
  std::string request;               // file of a request to sign
  std::vector<std::string> revoked;  // identity folders, certificate files or serial numbers
  std::string tickets;               // file of a tracker (--enrol-tickets)
  double hours = 1;                  // that a ticket counts
  int days = 0;                      // 0: the default of the command
  OutputFormat format = OutputFormat::kTable;
};

// Each returns an exit code.
int CertsInit(const CertsOptions& options);
int CertsIssue(const CertsOptions& options);
int CertsRenew(const CertsOptions& options);
// On the machine of the identity: its own key, and a request for it.
int CertsRequest(const CertsOptions& options);
// Where the authority is: the certificate for a request.
int CertsSign(const CertsOptions& options);
// A ticket with which a new agent gets its certificate from the tracker.
int CertsTicket(const CertsOptions& options);
// A new authority beside the old ones, or (retire) the end of the old ones.
int CertsRotate(const CertsOptions& options, bool retire);
// Puts certificates on the authority's list of revoked ones.
int CertsRevoke(const CertsOptions& options);
// The certificates of an authority, an identity or a PEM file, and what is wrong with them; 1 when
// something is.
int CertsShow(const std::string& path, OutputFormat format);

}  // namespace tilewright::cli
