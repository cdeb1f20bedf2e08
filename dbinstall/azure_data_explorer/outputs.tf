output "kusto_uri" {
  value = azurerm_kusto_cluster.benchmark.uri
}

output "kusto_ingest_uri" {
  value = azurerm_kusto_cluster.benchmark.data_ingestion_uri
}

output "kusto_db" {
  value = azurerm_kusto_database.benchmark.name
}

output "adx_aad_app_id" {
  value = azuread_application.benchmark.client_id
}

output "adx_app_key" {
  value     = azuread_application_password.benchmark.value
  sensitive = true
}

output "adx_authority_id" {
  value = data.azurerm_client_config.current.tenant_id
}
